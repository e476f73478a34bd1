// The Java runner: JShell in this process, cells and answers on descriptor 3 (kernels/protocol.md).
//
// Threads: `runs` takes runs one after the other; `reader` turns the socket into a queue and ends the process with it; JShell runs
// each snippet in a thread of its own; the JVM's signal thread stops the snippet that is running. start.py has already read the
// line `start`: its environment is that of the process, its directory is the current one.

import java.io.ByteArrayOutputStream;
import java.io.FileDescriptor;
import java.io.FileInputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.CharBuffer;
import java.nio.charset.CharsetDecoder;
import java.nio.charset.CodingErrorAction;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.ZoneOffset;
import java.time.format.DateTimeFormatter;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;
import jdk.jshell.Diag;
import jdk.jshell.EvalException;
import jdk.jshell.ExpressionSnippet;
import jdk.jshell.JShell;
import jdk.jshell.JShellException;
import jdk.jshell.Snippet;
import jdk.jshell.SnippetEvent;
import jdk.jshell.SourceCodeAnalysis;
import jdk.jshell.UnresolvedReferenceException;
import jdk.jshell.VarSnippet;
import jdk.jshell.execution.LocalExecutionControl;
import jdk.jshell.spi.ExecutionControl;
import jdk.jshell.spi.ExecutionControlProvider;
import jdk.jshell.spi.ExecutionEnv;

public class Main {
  static final String[] IMPORTS = {
    "java.util.*", "java.io.*", "java.math.*", "java.net.*", "java.util.concurrent.*", "java.util.prefs.*", "java.util.regex.*",
    "java.util.function.*", "java.util.stream.*", "java.nio.file.*",
  };
  static final String PRINTF = "void printf(String format, Object... args) { System.out.printf(format, args); }";

  static Link link;
  static JShell shell;
  static final Control control = new Control();
  static volatile boolean interrupted;
  static volatile boolean evaluating;
  static int count;

  public static void main(String[] args) throws Exception {
    link = new Link();
    System.setOut(new Output("stdout"));
    System.setErr(new Output("stderr"));
    System.getenv().forEach(Main::setProperty);
    System.setProperty("java.util.prefs.userRoot", System.getProperty("java.io.tmpdir"));
    sun.misc.Signal.handle(new sun.misc.Signal("INT"), signal -> interrupt());
    shell = JShell.builder().executionEngine(new Provider(), null).build();
    for (String name : IMPORTS) shell.eval("import " + name + ";");
    shell.eval(PRINTF);
    link.listen();
    link.send(new Line("ready"));
    new Thread(new Threads(), Main::serve, "runs").start();
  }

  static void serve() {
    try {
      while (true) {
        Map<String, Object> request = link.requests.take();
        if ("execute".equals(request.get("op"))) execute(request);
        if ("forked".equals(request.get("op"))) forked(request);
      }
    } catch (InterruptedException impossible) {
      Runtime.getRuntime().halt(1);
    }
  }

  // The group above those in which JShell runs snippets, and so above all threads of the user.
  static class Threads extends ThreadGroup {
    Threads() {
      super("cells");
    }

    // JShell has a handler for its own thread, which must see everything, and says nothing about others.
    @Override
    public void uncaughtException(Thread thread, Throwable error) {
      super.uncaughtException(thread, error);
      if (error instanceof ThreadDeath || error instanceof InvocationTargetException) return;
      StringWriter text = new StringWriter();
      error.printStackTrace(new PrintWriter(text));
      System.err.print("Exception in thread \"" + thread.getName() + "\" " + text);
    }
  }

  // ---- a run

  static void execute(Map<String, Object> request) {
    Map<String, Object> env = request.get("env") instanceof Map<?, ?> given ? Json.object(given) : Map.of();
    interrupted = false;
    link.running = true;
    link.send(new Line("started").number("execution_count", ++count));
    env.forEach((name, value) -> setProperty(name, String.valueOf(value)));
    Line last;
    evaluating = true;
    try {
      last = evaluate(String.valueOf(request.get("code")));
    } catch (Throwable error) {
      last = error(error.getClass().getSimpleName(), String.valueOf(error.getMessage()), String.valueOf(error));
    }
    evaluating = false;
    if (interrupted) last = error("EvaluationInterruptedException", "The run was interrupted", "");
    for (String name : env.keySet()) {
      String original = identity.getOrDefault(name, System.getenv(name));
      if (original != null) setProperty(name, original);
      else if (!name.isEmpty()) System.clearProperty(name);
    }
    if (last != null) link.send(last);
    link.running = false;
    link.send(new Line("done"));
  }

  // ---- a copy

  static final Map<String, String> identity = new LinkedHashMap<>();  // over the environment of the process

  static void forked(Map<String, Object> request) {
    if (request.get("env") instanceof Map<?, ?> given) given.forEach((name, value) -> {
      identity.put(String.valueOf(name), String.valueOf(value));
      setProperty(String.valueOf(name), String.valueOf(value));
    });
    long seed = Long.parseUnsignedLong(String.valueOf(request.get("seed")).substring(0, 16), 16);
    Math.random();  // makes its generator, if there is none yet
    reseed("java.lang.Math$RandomNumberGeneratorHolder", "randomNumberGenerator", seed);
    reseed("java.util.Collections", "r", seed + 1);
    // Threads take their first number from it; a cell runs in a thread of its own.
    reseed("java.util.concurrent.ThreadLocalRandom", "seeder", seed + 2);
    reseed("java.util.SplittableRandom", "defaultGen", seed + 3);
    reseed("java.util.Random", "seedUniquifier", seed + 4);
  }

  // Generators that all code shares. The library has no other way to reach them; one that a version does not have needs nothing.
  static void reseed(String owner, String field, long seed) {
    try {
      var found = Class.forName(owner).getDeclaredField(field);
      found.setAccessible(true);
      Object generator = found.get(null);
      if (generator instanceof Random random) random.setSeed(seed);
      if (generator instanceof AtomicLong number) number.set(seed);
    } catch (ReflectiveOperationException | RuntimeException absent) {
      return;
    }
  }

  static void setProperty(String name, String value) {
    if (!name.isEmpty()) System.setProperty(name, value);
  }

  // Evaluates the snippets of a cell. Returns the result or error line, or null.
  static Line evaluate(String code) {
    SourceCodeAnalysis analysis = shell.sourceCodeAnalysis();
    Line result = null;
    String rest = code;
    while (!rest.isBlank() && !interrupted) {
      SourceCodeAnalysis.CompletionInfo info = analysis.analyzeCompletion(rest);
      String source;
      switch (info.completeness()) {
        case EMPTY -> {
          return result;
        }
        case DEFINITELY_INCOMPLETE -> {
          return error("IncompleteSourceException", rest, "The source is incomplete:\n" + rest);
        }
        case CONSIDERED_INCOMPLETE, UNKNOWN -> {
          source = info.source() != null ? info.source() : rest;
          rest = info.source() != null ? info.remaining() : "";
        }
        default -> {
          source = info.source();
          rest = info.remaining();
        }
      }
      result = null;
      for (SnippetEvent event : shell.eval(source)) {
        if (event.causeSnippet() != null) continue;  // an earlier snippet, affected by this one
        Line failure = failure(event, source);
        if (failure != null) return failure;
        result = value(event.snippet());
      }
    }
    return result;
  }

  // Interrupts what runs, again and again until it ends: code may be between two snippets, or ignore the first attempt.
  static void interrupt() {
    if (!evaluating) return;
    interrupted = true;
    Thread.ofPlatform().daemon().start(() -> {
      int run = count;
      while (evaluating && count == run) {
        try {
          shell.stop();
          Thread.sleep(50);
        } catch (Throwable again) {
          // An attempt may fail in the middle of a snippet's end; the next one is due in any case.
        }
      }
    });
  }

  // ---- values and errors

  static Line value(Snippet snippet) {
    VarSnippet variable = null;
    if (snippet.subKind() == Snippet.SubKind.TEMP_VAR_EXPRESSION_SUBKIND) {
      variable = (VarSnippet) snippet;
    } else if (snippet.subKind() == Snippet.SubKind.VAR_VALUE_SUBKIND) {
      String name = ((ExpressionSnippet) snippet).name();
      variable = shell.variables().filter(v -> v.name().equals(name)).findFirst().orElse(null);
    }
    if (variable == null) return null;
    control.value = null;
    shell.varValue(variable);
    Object value = control.value;
    control.value = null;
    return value == null ? null : new Line("result").text("text", trimQuotes(String.valueOf(value))).raw("extra", "{}").raw("is_main_result", "true");
  }

  static String trimQuotes(String text) {
    int end = text.length() - 1;
    boolean quoted = end > 0 && text.charAt(0) == text.charAt(end) && (text.charAt(0) == '"' || text.charAt(0) == '\'');
    return quoted ? text.substring(1, end) : text;
  }

  static Line error(String name, String value, String traceback) {
    return new Line("error").text("name", name).text("value", value == null ? "" : value).text("traceback", traceback);
  }

  static Line failure(SnippetEvent event, String source) {
    JShellException thrown = event.exception();
    if (thrown instanceof EvalException e) {
      return error("EvalException", e.getMessage(), trace(e));
    }
    if (thrown instanceof UnresolvedReferenceException e) {
      return error("UnresolvedReferenceException", e.getMessage(), "UnresolvedReferenceException: " + e.getMessage() + unresolved(e.getSnippet()));
    }
    if (thrown != null) return error(thrown.getClass().getSimpleName(), thrown.getMessage(), String.valueOf(thrown));
    if (event.status() == Snippet.Status.REJECTED) {
      StringBuilder text = new StringBuilder();
      shell.diagnostics(event.snippet()).filter(Diag::isError).forEach(d -> text.append(diagnostic(source, d)));
      return error("CompilationException", "", text.toString());
    }
    return null;
  }

  static String unresolved(jdk.jshell.DeclarationSnippet snippet) {
    return shell.unresolvedDependencies(snippet).reduce("", (all, one) -> all + "\n  " + one);
  }

  // The stack of a user's exception and its causes, without the frames below the snippet.
  static String trace(EvalException error) {
    StringBuilder text = new StringBuilder();
    int depth = 0;
    for (Throwable e = error; e != null && depth < 20; e = e.getCause(), depth++) {
      String name = e instanceof EvalException own ? own.getExceptionClassName() : e.getClass().getSimpleName();
      text.append(depth > 0 ? "Caused by: " : "").append(name).append(e.getMessage() == null ? "" : ": " + e.getMessage()).append('\n');
      for (StackTraceElement frame : e.getStackTrace()) {
        if (frame.getClassName().startsWith("jdk.internal.reflect.") || frame.getMethodName().equals("do_it$")) break;
        text.append("    at ").append(frame).append('\n');
      }
    }
    return text.toString();
  }

  static String diagnostic(String source, Diag d) {
    StringBuilder text = new StringBuilder();
    int start = (int) Math.max(0, Math.min(d.getStartPosition(), source.length()));
    int from = source.lastIndexOf('\n', start - 1) + 1;
    int to = source.indexOf('\n', start);
    if (to < 0) to = source.length();
    int end = (int) Math.max(start + 1, Math.min(d.getEndPosition(), to));
    text.append(source, from, to).append('\n').append(" ".repeat(start - from)).append("^".repeat(Math.max(1, end - start))).append('\n');
    return text.append(d.getMessage(Locale.ENGLISH)).append('\n').toString();
  }

  // JShell's own local execution, which also hands out values instead of their descriptions.
  static class Control extends LocalExecutionControl {
    volatile Object value;

    @Override
    public String varValue(String className, String name) throws RunException, EngineTerminationException, InternalException {
      try {
        var field = findClass(className).getDeclaredField(name);
        field.setAccessible(true);
        value = field.get(null);
        return "";
      } catch (ReflectiveOperationException error) {
        throw new InternalException(String.valueOf(error));
      }
    }
  }

  static class Provider implements ExecutionControlProvider {
    public String name() {
      return "atoll";
    }

    public ExecutionControl generate(ExecutionEnv env, Map<String, String> parameters) {
      return control;
    }
  }

  // ---- output

  // Every call is one message; println() is two, the text and the line end.
  static class Output extends PrintStream {
    private final String type;
    private final CharsetDecoder decoder = StandardCharsets.UTF_8.newDecoder().onMalformedInput(CodingErrorAction.REPLACE)
        .onUnmappableCharacter(CodingErrorAction.REPLACE);
    private ByteBuffer partial = ByteBuffer.allocate(0);

    Output(String type) {
      super(OutputStream.nullOutputStream(), true, StandardCharsets.UTF_8);
      this.type = type;
    }

    private void say(String text) {
      link.output(type, text);
    }

    private void line(String text) {
      synchronized (this) {
        say(text);
        say("\n");
      }
    }

    @Override public void print(boolean x) { say(String.valueOf(x)); }
    @Override public void print(char x) { say(String.valueOf(x)); }
    @Override public void print(int x) { say(String.valueOf(x)); }
    @Override public void print(long x) { say(String.valueOf(x)); }
    @Override public void print(float x) { say(String.valueOf(x)); }
    @Override public void print(double x) { say(String.valueOf(x)); }
    @Override public void print(char[] x) { say(String.valueOf(x)); }
    @Override public void print(String x) { say(String.valueOf(x)); }
    @Override public void print(Object x) { say(String.valueOf(x)); }
    @Override public void println() { say("\n"); }
    @Override public void println(boolean x) { line(String.valueOf(x)); }
    @Override public void println(char x) { line(String.valueOf(x)); }
    @Override public void println(int x) { line(String.valueOf(x)); }
    @Override public void println(long x) { line(String.valueOf(x)); }
    @Override public void println(float x) { line(String.valueOf(x)); }
    @Override public void println(double x) { line(String.valueOf(x)); }
    @Override public void println(char[] x) { line(String.valueOf(x)); }
    @Override public void println(String x) { line(String.valueOf(x)); }
    @Override public void println(Object x) { line(String.valueOf(x)); }

    @Override
    public PrintStream format(Locale locale, String format, Object... args) {
      say(String.format(locale, format, args));
      return this;
    }

    @Override
    public PrintStream format(String format, Object... args) {
      say(String.format(format, args));
      return this;
    }

    @Override
    public void write(int b) {
      write(new byte[] {(byte) b}, 0, 1);
    }

    // Bytes of one character may come in several calls.
    @Override
    public synchronized void write(byte[] bytes, int offset, int length) {
      ByteBuffer in = ByteBuffer.allocate(partial.remaining() + length).put(partial).put(bytes, offset, length).flip();
      CharBuffer out = CharBuffer.allocate(in.remaining() + 1);
      decoder.reset().decode(in, out, false);
      partial = ByteBuffer.allocate(in.remaining()).put(in).flip();
      String text = out.flip().toString();
      if (!text.isEmpty()) say(text);
    }

    @Override public void close() {}
    @Override public boolean checkError() { return false; }
  }

  // ---- the socket

  // One JSON object, built in order.
  static class Line {
    private final StringBuilder text;

    Line(String type) {
      text = new StringBuilder("{\"type\":\"").append(type).append('"');
    }

    Line raw(String name, String json) {
      text.append(",\"").append(name).append("\":").append(json);
      return this;
    }

    Line number(String name, int value) {
      return raw(name, String.valueOf(value));
    }

    // ASCII only; an unpaired surrogate becomes U+FFFD.
    Line text(String name, CharSequence value) {
      text.append(",\"").append(name).append("\":\"");
      for (int i = 0; i < value.length(); i++) {
        char c = value.charAt(i);
        if (c == '"' || c == '\\') {
          text.append('\\').append(c);
        } else if (c == '\n') {
          text.append("\\n");
        } else if (c >= ' ' && c < 127) {
          text.append(c);
        } else if (Character.isHighSurrogate(c) && i + 1 < value.length() && Character.isLowSurrogate(value.charAt(i + 1))) {
          unit(c);
          unit(value.charAt(++i));
        } else {
          unit(Character.isSurrogate(c) ? '\uFFFD' : c);
        }
      }
      text.append('"');
      return this;
    }

    private void unit(char c) {
      text.append(String.format("\\u%04x", (int) c));
    }

    byte[] bytes() {
      return text.append("}\n").toString().getBytes(StandardCharsets.ISO_8859_1);
    }
  }

  static class Link {
    static final int MAX_CHUNK = 64 * 1024;
    static final DateTimeFormatter STAMP = DateTimeFormatter.ofPattern("yyyy-MM-dd'T'HH:mm:ss.SSSSSSxxx").withZone(ZoneOffset.UTC);

    final LinkedBlockingQueue<Map<String, Object>> requests = new LinkedBlockingQueue<>();
    volatile boolean running;
    private final FileInputStream in;
    private final FileOutputStream out;

    // Java has no way to name an inherited descriptor but this field.
    Link() throws ReflectiveOperationException {
      FileDescriptor socket = new FileDescriptor();
      var number = FileDescriptor.class.getDeclaredField("fd");
      number.setAccessible(true);
      number.setInt(socket, 3);
      in = new FileInputStream(socket);
      out = new FileOutputStream(socket);
    }

    void listen() {
      Thread.ofPlatform().daemon().name("reader").start(() -> {
        try {
          read(in);
        } catch (IOException ignored) {
          // as at the end of the socket
        } finally {
          Runtime.getRuntime().halt(0);
        }
      });
    }

    private void read(InputStream from) throws IOException {
      ByteArrayOutputStream line = new ByteArrayOutputStream();
      byte[] buffer = new byte[1 << 16];
      for (int n; (n = from.read(buffer)) > 0; ) {
        int start = 0;
        for (int i = 0; i < n; i++) {
          if (buffer[i] != '\n') continue;
          line.write(buffer, start, i - start);
          start = i + 1;
          requests.add(Json.object((Map<?, ?>) new Json(line.toString(StandardCharsets.UTF_8)).read()));
          line.reset();
        }
        line.write(buffer, start, n - start);
      }
    }

    // A line is written whole, or the process ends: FileOutputStream writes until everything is taken.
    synchronized void send(Line line) {
      try {
        out.write(line.bytes());
      } catch (IOException gone) {
        Runtime.getRuntime().halt(1);
      }
    }

    void output(String type, String text) {
      for (int at = 0; running && at < text.length(); ) {
        int end = Math.min(text.length(), at + MAX_CHUNK);
        if (end < text.length() && Character.isHighSurrogate(text.charAt(end - 1))) end--;
        send(new Line(type).text("text", text.substring(at, end)).text("timestamp", STAMP.format(Instant.now())));
        at = end;
      }
    }
  }

  // Reads what the agent sends: JSON without surprises.
  static class Json {
    private final String text;
    private int at;

    Json(String text) {
      this.text = text;
    }

    static Map<String, Object> object(Map<?, ?> map) {
      Map<String, Object> out = new LinkedHashMap<>();
      map.forEach((key, value) -> out.put(String.valueOf(key), value));
      return out;
    }

    private char next() {
      while (Character.isWhitespace(text.charAt(at))) at++;
      return text.charAt(at);
    }

    Object read() {
      char c = next();
      if (c == '"') return string();
      if (c == '{' || c == '[') return group(c == '{');
      int start = at;
      while (at < text.length() && ",]} \t\r\n".indexOf(text.charAt(at)) < 0) at++;
      String word = text.substring(start, at);
      return switch (word) {
        case "null" -> null;
        case "true" -> true;
        case "false" -> false;
        default -> Double.valueOf(word);
      };
    }

    private Object group(boolean named) {
      Map<String, Object> map = new LinkedHashMap<>();
      List<Object> list = new ArrayList<>();
      at++;
      while (next() != (named ? '}' : ']')) {
        if (text.charAt(at) == ',') {
          at++;
        } else if (named) {
          String key = string();
          next();
          at++;
          map.put(key, read());
        } else {
          list.add(read());
        }
      }
      at++;
      return named ? map : list;
    }

    private String string() {
      StringBuilder out = new StringBuilder();
      next();
      for (at++; text.charAt(at) != '"'; at++) {
        char c = text.charAt(at);
        if (c != '\\') {
          out.append(c);
          continue;
        }
        c = text.charAt(++at);
        switch (c) {
          case 'n' -> out.append('\n');
          case 't' -> out.append('\t');
          case 'r' -> out.append('\r');
          case 'b' -> out.append('\b');
          case 'f' -> out.append('\f');
          case 'u' -> {
            out.append((char) Integer.parseInt(text.substring(at + 1, at + 5), 16));
            at += 4;
          }
          default -> out.append(c);
        }
      }
      at++;
      return out.toString();
    }
  }
}
