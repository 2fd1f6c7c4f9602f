"""The built-in German-English corpus: words, clauses and sentences of a small grammar.

May import: nothing
"""
