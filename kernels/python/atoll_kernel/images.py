"""Pillow: what is shown or saved to a path appears among the results."""

from .private import __builtins__  # isort: skip

import functools


def install(module):
    """`module` is PIL.Image."""
    Image = module.Image
    original_save = Image.save

    @functools.wraps(original_save)
    def save(self, fp, *args, **options):
        if isinstance(fp, str):
            _display(self)
        return original_save(self, fp, *args, **options)

    @functools.wraps(Image.show)
    def show(self, *args, **options):
        _display(self)

    Image.save = save
    Image.show = show


def _display(image):
    from IPython.display import display

    display(image)
