"""The Transformer, its layers and its weights.

May import: files, model_folder
"""
