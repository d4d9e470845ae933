"""The W worker processes: one rank each, in lockstep, with the collectives between them."""
