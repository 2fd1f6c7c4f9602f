"""The search for good knobs: python -m pipeline search. It cannot change a result of a stage."""
