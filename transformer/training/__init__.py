"""The training of a Transformer: batches, loss, optimiser, loop, checkpoints, and processes that train together.

May import: decoding, evaluation, model, text, model_folder, cores, files
"""
