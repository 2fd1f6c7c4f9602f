"""The Transformer: ids to decoder states and logits. Its layers, and its weights on disk.

May import: files, model_folder
"""
