"""How a stage runs: command line, params, what a result is by dvc.lock, versions, git. Nothing in it shapes a result.

May import: nothing
"""
