"""IPython's InteractiveShell with our display, errors and commands. It writes no file: no profile, no history, no database."""

import builtins
import getpass
import os

from IPython.core import interactiveshell as _base
from IPython.core.displayhook import DisplayHook
from IPython.core.displaypub import DisplayPublisher
from IPython.core.error import StdinNotImplementedError
from IPython.core.history import HistoryManager
from IPython.core.interactiveshell import InteractiveShell
from IPython.core.profiledir import ProfileDir
from traitlets import Any, Type, Unicode, observe
from traitlets.config import Config

from . import terminal, values

NO_INPUT = "raw_input was called, but this frontend does not support input requests."


class Sink:
    """Where a shell reports to. This one, of a shell that serves nobody, drops everything."""

    def result(self, data, main):
        pass

    def error(self, name, value, traceback):
        pass


class Profile(ProfileDir):
    location = Unicode("/nonexistent")

    @observe("location")
    def _location_changed(self, change):
        pass


class Hook(DisplayHook):
    """The value of the last expression."""

    muted = False  # with arguments, the value of `main` is the result, not that of the cell
    _bundle = None

    def quiet(self):
        return self.muted or super().quiet()

    def write_output_prompt(self):
        pass

    def write_format_data(self, format_dict, md_dict=None):
        self._bundle = format_dict

    def finish_displayhook(self):
        self._is_active = False
        bundle, self._bundle = self._bundle, None
        if bundle:
            self.shell.sink.result(bundle, True)


class Publisher(DisplayPublisher):
    """display(): results that are not the main one. An update changes nothing: what was sent stays."""

    def publish(self, data, metadata=None, source=None, *, transient=None, update=False, **kwargs):
        if data and not update:
            self.shell.sink.result(data, False)

    def clear_output(self, wait=False):
        pass


class History(HistoryManager):
    """In memory. An interrupt that came while one of its locks is being taken would leave that held for ever: it comes afterwards."""

    def store_inputs(self, *arguments, **options):
        interrupts = self.shell.interrupts
        held = interrupts is not None and interrupts.hold()
        try:
            super().store_inputs(*arguments, **options)
        finally:
            if held:
                interrupts.release()


class Shell(InteractiveShell):
    displayhook_class = Type(Hook)
    display_pub_class = Type(Publisher)
    sink = Any(Sink())
    kernel = None  # libraries take a shell that has this for a notebook, not for a terminal
    wants_exit = False
    loop = None  # of the kernel (loop.Loop)
    interrupts = None  # likewise (interrupt.Interrupts)

    @observe("ipython_dir")
    def _ipython_dir_changed(self, change):
        pass

    def init_virtualenv(self):
        pass

    def init_hooks(self):
        super().init_hooks()
        self.set_hook("show_in_pager", lambda *page, **options: None, 99)

    def init_history(self):
        self.history_manager = History(shell=self, parent=self)
        self.configurables.append(self.history_manager)

    def init_user_ns(self):
        """Cells find `os` without an import."""
        super().init_user_ns()
        self.user_ns["os"] = self.user_ns_hidden["os"] = os

    def init_display_formatter(self):
        self.display_formatter = values.Formatter(parent=self)
        self.configurables.append(self.display_formatter)

    def enable_gui(self, gui=None):
        """There is none; %matplotlib asks anyway."""

    def ask_exit(self):
        self.wants_exit = True

    def showtraceback(self, exc_tuple=None, *args, **options):
        if self.loop is not None and self.loop.cancelling:
            kind, value, trace = self._get_exc_info(exc_tuple)
            if kind.__name__ == "CancelledError":
                interrupt = KeyboardInterrupt()
                exc_tuple = KeyboardInterrupt, interrupt, trace
        super().showtraceback(exc_tuple, *args, **options)

    def _showtraceback(self, etype, evalue, stb):
        self.sink.error(etype.__name__, safe_text(evalue), "".join(stb) if isinstance(stb, list) else str(stb))

    def system_piped(self, cmd):
        if cmd.rstrip().endswith("&"):
            raise OSError("Background processes not supported.")
        self.user_ns["_exit_code"] = terminal.run(self.var_expand(cmd, depth=1))

    system = system_piped

    def atexit_operations(self):
        pass


def safe_text(value):
    try:
        return str(value)
    except BaseException:
        return "<exception str() failed>"


def _no_input(prompt="", stream=None, **options):
    raise StdinNotImplementedError(NO_INPUT)


def configuration():
    config = Config()
    config.InteractiveShell.colors = "NoColor"
    config.InteractiveShell.autoindent = False
    config.HistoryManager.enabled = False
    config.HistoryManager.hist_file = ":memory:"
    config.PlainTextFormatter.max_seq_length = 0
    config.PlainTextFormatter.max_width = 79
    return config


def create():
    """The one shell of this process."""
    _base.PickleShareDB = lambda root: {}  # %cd and %bookmark keep their notes in memory
    shell = Shell.instance(config=configuration(), ipython_dir="/nonexistent", profile_dir=Profile())
    builtins.input = _no_input
    getpass.getpass = _no_input
    return shell
