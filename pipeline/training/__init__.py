"""What the stages train and back_translate share: the training, its processes, its environment. It can change a result.

May import: workflow
"""
