# Evaluates cells.

owner <- Sys.getpid()
traceback_calls <- 100L
leave <- NULL  # R's own quit

serve <- function(directory) {
  if (!l10n_info()[["UTF-8"]]) Sys.setlocale("LC_CTYPE", "C.UTF-8")
  settle()
  load_native(directory)
  # An interrupt belongs to the user's code alone: everything here is evaluated without, see `evaluate`.
  suspendInterrupts(repeat {
    code <- next_code()
    if (is.null(code)) break
    run(code)
  })
  leave(save = "no")
}

# What a session without a terminal needs.
settle <- function() {
  site <- file.path(R.home("etc"), "Rprofile.site")
  if (file.exists(site)) tryCatch(sys.source(site, envir = new.env(parent = globalenv())), error = function(e) NULL)
  options(keep.source = TRUE, pager = "cat", help_type = "text", menu.graphics = FALSE)
  options(browser = function(url) invisible())
  start_plots()
  leave <<- base::quit
  replace_in_base("quit", quit_run)
  replace_in_base("q", quit_run)
  # R stands aside while a command of `system` runs and leaves SIGINT to the terminal's process group. With a limit of
  # time, however large, it passes the signal on to the command instead.
  for (name in c("system", "system2")) {
    f <- get(name, baseenv())
    formals(f)$timeout <- 365 * 86400
    replace_in_base(name, f)
  }
}

replace_in_base <- function(name, value) {
  unlockBinding(name, baseenv())
  assign(name, value, envir = baseenv())
  lockBinding(name, baseenv())
}

# `quit()` ends the run, and the session lives on. A forked child really ends, at once: R's own way out removes the
# directory of temporary files, which is the parent's.
quit_run <- function(save = "default", status = 0, runLast = TRUE) {
  if (Sys.getpid() != owner) end_child(status)
  invokeRestart("atoll_quit")
}

run <- function(code) {
  on.exit(end_run())
  expressions <- tryCatch(parse(text = gsub("\r\n", "\n", code, fixed = TRUE), keep.source = TRUE), error = identity)
  if (inherits(expressions, "error")) {
    value <- paste0("Error in parse(text = input): ", text_of(expressions), "\n")
    return(send_error("ERROR", value, paste0(value, "Traceback:\n")))
  }
  for (expression in expressions) {
    outcome <- evaluate(expression)
    quietly(after_expression())
    flush_output()
    if (!identical(outcome, "next")) break
  }
  quietly(show_open_pages())
  if (exists("outcome") && is.list(outcome)) send_error(outcome$name, outcome$value, outcome$traceback)
}

# What fails in the runner's own work on a plot (its file was removed, a package's drawing cannot be repeated) costs
# that plot, not the run.
quietly <- function(expr) tryCatch(suppressMessages(suppressWarnings(expr)), error = function(e) NULL)

# "next", "quit", or the error that ends the run.
evaluate <- function(cell_expression) {
  calls <- list()
  withRestarts(
    tryCatch(
      withCallingHandlers(
        allowInterrupts({
          value <- withVisible(eval(cell_expression, globalenv()))
          if (value$visible) show_value(value$value)
          "next"
        }),
        message = on_message,
        warning = on_warning,
        error = function(e) calls <<- sys.calls()
      ),
      interrupt = function(e) list(name = "ExecutionAborted", value = "Execution was aborted", traceback = ""),
      error = function(e) error_of(e, calls)
    ),
    atoll_quit = function() "quit",
    abort = function() "quit"
  )
}

own_frames <- list(quote(eval(cell_expression, globalenv())), quote(print_value(value)))

show_value <- function(value) {
  text <- printed(print_value(value))
  size <- length(text)
  if (size > 0L && text[[size]] == 0x0a) {
    size <- size - 1L
    text <- text[seq_len(size)]
  }
  # An object that only draws itself says nothing.
  if (size == 0L) return(invisible())
  if (size > 1L && text[[1L]] == text[[size]] && rawToChar(text[[1L]]) %in% c("'", "\"")) text <- text[-c(1L, size)]
  send_result(text, html_of(value))
}

# As the console does, with the methods that the user has defined.
print_value <- function(value) {
  frame <- new.env(parent = globalenv())
  frame$x <- value
  eval(if (isS4(value)) quote(methods::show(x)) else quote(base::print(x)), frame)
}

text_of <- function(condition) {
  text <- tryCatch(conditionMessage(condition), error = function(e) "(the message of this condition failed)")
  paste(text, collapse = "\n")
}

on_message <- function(condition) {
  send_stderr(paste0(text_of(condition), "\n"))
  tryInvokeRestart("muffleMessage")
}

on_warning <- function(condition) {
  if (isTRUE(getOption("warn") >= 0)) {
    call <- call_text(conditionCall(condition))
    where <- if (is.null(call)) "Warning message:" else paste0("Warning message in ", call, ":")
    send_stderr(paste0(where, "\n\u201c", text_of(condition), "\u201d\n"))
  }
  tryInvokeRestart("muffleWarning")
}

is_own <- function(call) any(vapply(own_frames, identical, TRUE, call))

# The first line of a call's text, or NULL for one of ours.
call_text <- function(call) {
  if (is.null(call) || is_own(call)) return(NULL)
  text <- tryCatch(deparse(call, nlines = 1L)[[1L]], error = function(e) "?")
  if (nchar(text) > 500L) paste0(substr(text, 1L, 500L), "...") else text
}

error_of <- function(e, calls) {
  call <- call_text(conditionCall(e))
  value <- paste0(if (is.null(call)) "Error: " else paste0("Error in ", call, ": "), text_of(e), "\n")
  list(name = "ERROR", value = value, traceback = paste0(value, "Traceback:\n", numbered(user_calls(calls))))
}

# The calls between ours: below them is the runner, above them the handler that looked at them.
user_calls <- function(calls) {
  own <- which(vapply(calls, is_own, TRUE))
  if (length(own) == 0L) return(list())
  calls <- calls[-seq_len(max(own))]
  calls <- calls[-length(calls)]
  handler <- quote(.handleSimpleError)
  while (length(calls) > 0L && identical(calls[[length(calls)]][[1L]], handler)) calls <- calls[-length(calls)]
  calls
}

numbered <- function(calls) {
  count <- length(calls)
  if (count == 0L) return("")
  half <- traceback_calls / 2L
  shown <- if (count > traceback_calls) c(seq_len(half), seq(count - half + 1L, count)) else seq_len(count)
  lines <- vapply(shown, function(i) {
    line <- attr(calls[[i]], "srcref")
    place <- if (is.null(line)) "" else paste0("   # at line ", line[[1L]], " of the cell")
    text <- call_text(calls[[i]])
    paste0(i, ". ", if (is.null(text)) "" else text, place)
  }, "")
  if (count > traceback_calls) lines <- append(lines, "...", half)
  paste0(paste(lines, collapse = "\n"), "\n")
}
