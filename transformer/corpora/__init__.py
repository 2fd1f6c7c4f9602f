"""Where parallel text comes from: your files, downloads, the copy task, the built-in grammar.

May import: files
"""
