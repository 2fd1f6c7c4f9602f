"""Ids in, hypotheses out: beam search, sampling, forced decoding, attention maps.

May import: model, text
"""
