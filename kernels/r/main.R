# The runner of R. One process, one context: it waits for a cell on the socket (descriptor 3), evaluates the cell's
# expressions one by one in the global environment, and sends what they print, draw, return and signal.
#
#   native/   libatoll-r.so: socket, descriptors 1 and 2, SIGINT, environment; reached by native.R alone
#   run.R     evaluates a cell: values, messages, warnings, errors, interrupts
#   plots.R   the graphics device, and which pages of it are results
#   html.R    data frames as tables
#
# Nothing of it is in the global environment, and a user's definitions do not reach into it.
local({
  here <- dirname(sub("^--file=", "", grep("^--file=", commandArgs(), value = TRUE)[[1]]))
  runner <- new.env(parent = .BaseNamespaceEnv)
  for (file in c("native.R", "html.R", "plots.R", "run.R")) {
    sys.source(file.path(here, file), envir = runner, keep.source = FALSE)
  }
  runner$serve(here)
})
