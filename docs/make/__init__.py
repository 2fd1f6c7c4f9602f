"""Builds what is generated in README.md and docs/: tables, pictures, the walkthrough, the page of `dvc plots show`."""
