"""The contract with users: names, models, conditions, and the CRD made from them. No I/O."""
