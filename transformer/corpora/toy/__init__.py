"""The built-in German-English corpus, written by a small grammar: words, clauses, choice of words, sentences.

May import: nothing
"""
