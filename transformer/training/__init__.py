"""A training: batches, loss, optimiser, the loop, its checkpoints, several processes.

May import: decoding, evaluation, model, text, model_folder, files
"""
