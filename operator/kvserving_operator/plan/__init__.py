"""Pure decisions: a KVServing becomes a Plan, or a Refusal that names every fault."""
