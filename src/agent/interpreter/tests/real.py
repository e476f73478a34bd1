"""The API against the real runners: in_template AGENT KERNELS python3 real.py. Prints what failed; exit status 1 if something did."""
import http.client
import json
import sys
import time

failures = 0


def check(name, got, wanted):
    global failures
    if got != wanted:
        failures += 1
        print(f"{name}: got {got!r}, wanted {wanted!r}")


def call(method, path, body=None):
    link = http.client.HTTPConnection("127.0.0.1", 49999, timeout=60)
    link.request(method, path, None if body is None else json.dumps(body))
    answer = link.getresponse()
    return answer.status, answer.read().decode()


def execute(code, **more):
    status, text = call("POST", "/execute", {"code": code, **more})
    if status != 200:
        return [f"{status} {text}"]
    return [json.loads(line) for line in text.splitlines()]


def told(code, **more):
    """stdout, the texts of results, names of errors."""
    lines = execute(code, **more)
    if isinstance(lines[0], str):
        return lines[0]
    out = "".join(line["text"] for line in lines if line["type"] == "stdout")
    results = [line["text"] for line in lines if line["type"] == "result"]
    errors = [line["name"] for line in lines if line["type"] == "error"]
    check(f"end of {code!r}", lines[-1]["type"], "end_of_execution")
    return [out.strip(), *results, *errors]


def leave(code, language):
    """A client that goes away in the middle of a run."""
    link = http.client.HTTPConnection("127.0.0.1", 49999, timeout=60)
    link.request("POST", "/execute", json.dumps({"code": code, "language": language}))
    link.getresponse().readline()
    time.sleep(0.3)
    link.close()


CELLS = {
    "python": ("x = 20", "print(x); x + 1", ["20", "21"], "import time; time.sleep(100)"),
    "javascript": ("let x = 20", "console.log(x); x + 1", ["20", "21"], "while (true) {}"),
    "typescript": ("let x: number = 20", "console.log(x); x + 1", ["20", "21"], "while (true) {}"),
    "bash": ("x=20", "echo $x", ["20"], "sleep 100"),
    "r": ("x <- 20", "cat(x)", ["20"], "Sys.sleep(100)"),
    "java": ("int x = 20;", "System.out.println(x); x + 1", ["20", "21"], "Thread.sleep(100000)"),
}
ENV = {
    "python": "import os; print(os.getenv('FOO', 'default'))",
    "javascript": "console.log(process.env.FOO || 'default')",
    "typescript": "console.log(process.env.FOO || 'default')",
    "bash": "echo ${FOO:-default}",
    "r": 'cat(Sys.getenv("FOO", unset="default"))',
    "java": 'System.out.println(System.getProperty("FOO", "default"))',
}
available = json.load(open(sys.argv[1]))["languages"] if len(sys.argv) > 1 else list(CELLS)
for language in available:
    first, second, wanted, endless = CELLS[language]
    begin = time.monotonic()
    check(language, told(first, language=language)[:1], [""])
    started = time.monotonic() - begin
    check(language, told(second, language=language), wanted)
    check(f"{language}: env", told(ENV[language], language=language, env_vars={"FOO": "bar"}), ["bar"])
    check(f"{language}: env after", told(ENV[language], language=language), ["default"])
    leave(endless, language)
    begin = time.monotonic()
    check(f"{language}: after an interrupt", told(second, language=language), wanted)
    print(f"{language}: first run {started:.2f} s, after an interrupt {time.monotonic() - begin:.2f} s")

check("arguments", told("def main(a, b=2): return a + b", arguments={"a": 1}), ["", "3"])
check("arguments js", told("function main(o) { return o.a * 2 }", language="js", arguments={"a": 4}), ["", "8"])
check("arguments bash", told("x", language="bash", arguments={}), "400 arguments are not supported for bash")
check("exit", told("x = 5\nexit()"), [""])
check("after exit", told("x"), ["", "NameError"])
check("sys.exit", told("import sys; sys.exit(3)"), ["", "SystemExit"])
check("os._exit", told("import os; os._exit(3)"), ["", "ContextRestarting"])
check("segfault", told("import ctypes; ctypes.string_at(0)"), ["", "ContextRestarting"])
check("bomb", told("print('x' * (1 << 30))")[-1], "OutputLimitExceeded")
check("line bomb", told("'x' * (1 << 30)")[-1], "OutputLimitExceeded")
check("displays", told("for i in range(100000): display(i)")[-1], "OutputLimitExceeded")
check("usable", told("1 + 1"), ["", "2"])
check("closed stdout", told("import os; os.close(1); os.close(2); 5")[-1], "5")
check("still usable", told("6"), ["", "6"])
leave("import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); time.sleep(1000)", "python")
check("deaf", [line["text"] for line in execute("7") if line["type"] == "stderr"][0][:20], "The previous run did")
times = []
link = http.client.HTTPConnection("127.0.0.1", 49999)
for _ in range(300):
    begin = time.monotonic()
    link.request("POST", "/execute", '{"code":"1+1"}')
    link.getresponse().read()
    times.append(time.monotonic() - begin)
times.sort()
print(f"1+1: p50 {times[150] * 1e3:.2f} ms, p99 {times[297] * 1e3:.2f} ms")
sys.exit(1 if failures else 0)
