"""What the engine check can see: log-probabilities with the KV of a few tokens wrong.

    python3 bench/granikv/sensitivity.py     (torch; no GPU needed)

33 tokens are decoded behind 1,167 others with 1, 4, 16 or 64 of those slots holding the KV of
another position, in float32; printed is how far that moves the best token's log-probability.
"""

import random
import sys

import tiny_model
import torch

LENGTH, LAST = 1200, 33


def main() -> None:
    """One line for each number of wrong slots."""
    rng = random.Random(3)
    ids = [rng.randrange(3, tiny_model.VOCABULARY) for _ in range(LENGTH)]
    model = tiny_model.Reference("cuda" if torch.cuda.is_available() else "cpu")
    right = model.logprobs(ids, LAST)
    best = right.argmax(-1, keepdim=True)
    for wrong in (0, 1, 4, 16, 64):
        moved = []
        for _ in range(3):
            seen = list(range(LENGTH))
            for at in rng.sample(range(LENGTH - 80), wrong):
                seen[at] = (at * 7 + 13) % (LENGTH - 80)
            moved.append((model.logprobs(ids, LAST, seen) - right).gather(-1, best).abs())
        error = torch.cat(moved)
        rms, most = error.square().mean().sqrt().item(), error.max().item()
        sys.stdout.write(f"{wrong:3} slots wrong: rms {rms:.4f}, max {most:.3f}\n")


if __name__ == "__main__":
    main()
