"""Builds what is generated: tables, pictures, the walkthrough, the site of docs/, the page of `dvc plots show`."""
