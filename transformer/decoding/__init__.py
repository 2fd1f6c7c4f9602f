"""Source ids to translations: beam search and sampling. Given translations to scores and attention maps.

May import: model, text
"""
