"""Source ids to translations: beam search and sampling. Sentence pairs to scores and attention maps.

May import: model, text
"""
