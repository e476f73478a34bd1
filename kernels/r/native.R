# The functions of libatoll-r.so. Texts cross as raw vectors of UTF-8, so that no locale a user sets changes them.

library_name <- "libatoll-r"
native <- NULL  # its functions, by name

load_native <- function(directory) {
  dll <- dyn.load(file.path(directory, paste0(library_name, .Platform$dynlib.ext)))
  names <- c(
    "init", "next", "code", "done", "flush", "stderr", "collect", "taken", "taken_text", "abandon", "exit",
    "result", "error"
  )
  native <<- sapply(names, function(name) getNativeSymbolInfo(paste0("atoll_", name), dll), simplify = FALSE)
  if (.C(native$init, failed = 0L)$failed != 0L) stop("descriptor 3 is not the agent's socket")
}

utf8 <- function(text) charToRaw(enc2utf8(paste(text, collapse = "\n")))

# The code of the next run, or NULL when the agent is gone.
next_code <- function() {
  repeat {
    asked <- .C(native[["next"]], size = 0L, seed = 0L)
    size <- asked$size
    if (size != -2L) break
    set.seed(asked$seed)
  }
  if (size < 0L) return(NULL)
  code <- rawToChar(.C(native$code, code = raw(size))$code)
  Encoding(code) <- "UTF-8"
  code
}

end_run <- function() .C(native$done)

end_child <- function(status) .C(native$exit, as.integer(status))

flush_output <- function() .C(native$flush)

send_stderr <- function(text) {
  bytes <- utf8(text)
  .C(native$stderr, bytes, length(bytes))
}

# What is printed while `expr` is evaluated, as bytes. If that fails, they are output like any other.
printed <- function(expr) {
  .C(native$collect)
  complete <- FALSE
  on.exit(if (!complete) .C(native$abandon))
  expr
  size <- .C(native$taken, size = 0L)$size
  complete <- TRUE
  .C(native$taken_text, text = raw(size))$text
}

send_result <- function(text, html = raw(), png = raw()) {
  .C(native$result, text, length(text), html, length(html), png, length(png))
}

send_error <- function(name, value, traceback) {
  name <- utf8(name)
  value <- utf8(value)
  traceback <- utf8(traceback)
  .C(native$error, name, length(name), value, length(value), traceback, length(traceback))
}
