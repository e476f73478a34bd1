# Runs main(**arguments) of a program. stdin is the body of POST /run; argv: the directory to work in, the file for
# the report. The report is the peak of memory in kB and, if main() returned, a line end and its value as JSON.
import sys


def _run():
    import binascii, json, os, resource

    directory, report_file = os.path.abspath(sys.argv[1]), sys.argv[2]
    request = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    os.makedirs(os.path.join(directory, "artifacts"), exist_ok=True)
    os.chdir(directory)
    path = os.path.join(directory, "main.py")
    code = binascii.a2b_base64(request["code_b64"]).decode("utf-8").removeprefix("\ufeff")
    with open(path, "w", encoding="utf-8", newline="") as file:
        file.write(code)
    sys.argv[:] = [path]
    sys.path[0] = directory

    def report(value=None):
        used = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        text = str(used) if value is None else str(used) + "\n" + value
        with open(report_file + ".new", "w", encoding="utf-8", newline="") as file:
            file.write(text)
        os.replace(report_file + ".new", report_file)

    def fail(message):
        report()
        sys.stdout.flush()
        print(message, file=sys.stderr, flush=True)
        sys.exit(1)

    module = type(sys)("main")
    module.__file__ = path
    sys.modules["main"] = module
    ours = sys._getframe().f_code
    try:
        exec(compile(code, path, "exec", dont_inherit=True), module.__dict__)
        main = module.__dict__.get("main")
        if callable(main):
            value = main(**(request.get("arguments") or {}))
            if hasattr(value, "__await__"):
                import asyncio

                async def awaited(one):
                    return await one

                value = asyncio.run(awaited(value))
    except SystemExit:
        report()
        raise
    except BaseException as error:
        # From the first frame that is not ours: what a person would see who ran the file.
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code is ours:
            trace = trace.tb_next
        report()
        sys.stdout.flush()
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        sys.exit(1)
    if not callable(main):
        fail("Error: the code must define a function main()")
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode("utf-8")
    except Exception as error:
        fail(f"Error: main() must return a value that JSON can express: {error}")
    report(text)


_run()
