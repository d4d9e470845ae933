"""Firewall rules of kube-proxy, kube-router and CNI plugins: told from others', and removed.

Ours are the chains named KUBE-* and CNI-* that were not there before the cluster, and the rules of
other chains that jump to them. Everything else is never touched. The text functions are pure.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from dataclasses import dataclass, field
from itertools import pairwise

FAMILIES = {"iptables": "ip", "ip6tables": "ip6"}  # command to nftables' name
OUR_CHAIN = re.compile(r"(KUBE|CNI)-")
JUMPS = ("-j", "-g")


@dataclass
class Table:
    """One table of iptables-save: chain policies and rules, in order."""

    chains: dict[str, str] = field(default_factory=dict)  # name to policy, "-" for user chains
    rules: list[str] = field(default_factory=list)  # as printed: "-A CHAIN …"

    @property
    def empty(self) -> bool:
        """Only built-in chains that accept, no rules: as if the table had never been used."""
        return not self.rules and all(policy == "ACCEPT" for policy in self.chains.values())


def parse(saved: str) -> dict[str, Table]:
    """The output of iptables-save by table."""
    tables: dict[str, Table] = {}
    table = Table()
    for line in saved.splitlines():
        if line.startswith("*"):
            table = tables.setdefault(line[1:].strip(), Table())
        elif line.startswith(":"):
            name, policy = line[1:].split()[:2]
            table.chains[name] = policy
        elif line.startswith("-A "):
            table.rules.append(line)
    return tables


def our_chains(table: Table, foreign: frozenset[str]) -> list[str]:
    """Names of our chains in a table; `foreign` are those that were there before us."""
    return [name for name in table.chains if OUR_CHAIN.match(name) and name not in foreign]


def removal(saved: str, foreign: frozenset[str]) -> str:
    """Input for `iptables-restore --noflush` that removes our chains and the jumps to them."""
    lines: list[str] = []
    for name, table in parse(saved).items():
        ours = our_chains(table, foreign)
        if not ours:
            continue
        lines.append(f"*{name}")
        lines += [f"-D {rule[3:]}" for rule in table.rules if _is_jump_from_outside(rule, ours)]
        lines += [f"-F {chain}" for chain in ours]  # all before any -X: they refer to each other
        lines += [f"-X {chain}" for chain in ours]
        lines.append("COMMIT")
    return "\n".join([*lines, ""]) if lines else ""


def _is_jump_from_outside(rule: str, ours: list[str]) -> bool:
    words = shlex.split(rule)  # a comment may hold anything, but it is one word
    targets = [word for before, word in pairwise(words) if before in JUMPS]
    return words[1] not in ours and any(target in ours for target in targets)


def save(family: str) -> str:
    """The current rules of a family, "" where the kernel has none of it."""
    done = subprocess.run([f"{family}-save"], capture_output=True, text=True, check=False)
    return done.stdout if done.returncode == 0 else ""


def chain_names(saved: str) -> frozenset[str]:
    """Names of all chains of all tables."""
    return frozenset(chain for table in parse(saved).values() for chain in table.chains)


def find_ours(before: dict[str, str]) -> list[str]:
    """Our chains, and tables that hold nothing and were not there before, of both families.

    `before` is what `save` said of each family before the cluster.
    """
    found = []
    for family in FAMILIES:
        old = before.get(family, "")
        foreign, known = chain_names(old), parse(old)
        for name, table in parse(save(family)).items():
            found += [f"{family} {name} {chain}" for chain in our_chains(table, foreign)]
            if table.empty and name not in known and uses_nftables():
                found.append(f"{family} {name}")
    return found


def remove_ours(before: dict[str, str]) -> None:
    """Remove what `find_ours` finds, so that the rules end as they were."""
    for family, kernel_name in FAMILIES.items():
        old = before.get(family, "")
        script = removal(save(family), chain_names(old))
        if script:
            command = [f"{family}-restore", "--noflush", "--wait=5"]
            subprocess.run(command, input=script, text=True, capture_output=True, check=False)
        for name, table in parse(save(family)).items():
            if table.empty and name not in parse(old) and uses_nftables():
                command = ["nft", "delete", "table", kernel_name, name]
                subprocess.run(command, capture_output=True, check=False)


def uses_nftables() -> bool:
    """Whether iptables is the variant over nftables; the tables of the other cannot be deleted."""
    try:
        done = subprocess.run(["iptables", "-V"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return False
    return "nf_tables" in done.stdout
