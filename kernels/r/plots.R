# Plots. The default device is a PNG device that writes each page to a file when the page is finished: the next
# one began, or the device was closed. Such a file is a result. At the end of a run the page that is still open is
# drawn into a file of its own, so that a later run can go on with it; it is shown again only if it was changed then.

page_width <- 7
page_dpi <- 120
plot_text <- charToRaw("plot without title")

open_pages <- new.env(parent = emptyenv())  # number of the device -> its series of pages
series_made <- 0L

plot_directory <- function() file.path(tempdir(check = TRUE), "atoll-plots")

png_device <- function(file) {
  grDevices::png(file, width = page_width, height = page_width, units = "in", res = page_dpi, type = "cairo")
}

open_plot_device <- function(...) {
  dir.create(plot_directory(), showWarnings = FALSE)
  series_made <<- series_made + 1L
  png_device(file.path(plot_directory(), paste0("series", series_made, "-page%d.png")))
  grDevices::dev.control("enable")
  # `shown`: the marks on the open page when it was last sent. `changed`: it was seen to be different since.
  pages <- list2env(list(series = series_made, finished = 0L, shown = NULL, changed = FALSE), parent = emptyenv())
  assign(as.character(grDevices::dev.cur()), pages, envir = open_pages)
}

start_plots <- function() {
  options(device = open_plot_device)
  # Pages leave as they are finished, not all at the end of a long loop.
  setHook("plot.new", function(...) suspendInterrupts(send_finished_pages()), "append")
  setHook("grid.newpage", function(...) suspendInterrupts(send_finished_pages()), "append")
}

send_page <- function(file) {
  bytes <- tryCatch(readBin(file, "raw", file.size(file)), error = function(e) raw())
  unlink(file)
  if (length(bytes) > 0L) send_result(plot_text, png = bytes)
}

page_file <- function(pages, page) file.path(plot_directory(), paste0("series", pages$series, "-page", page, ".png"))

# The file of a page is there as soon as the page was begun, and complete when the next one was.
is_finished <- function(pages, is_open) {
  file.exists(page_file(pages, pages$finished + if (is_open) 2L else 1L))
}

send_finished_pages <- function() {
  devices <- ls(open_pages)
  open <- as.character(plot_devices())
  for (device in devices[order(as.integer(devices))]) {
    pages <- open_pages[[device]]
    while (is_finished(pages, device %in% open)) {
      pages$finished <- pages$finished + 1L
      file <- page_file(pages, pages$finished)
      if (is.null(pages$shown) || pages$changed) send_page(file) else unlink(file)
      pages$shown <- NULL
      pages$changed <- FALSE
    }
  }
  rm(list = setdiff(devices, open), envir = open_pages)
}

# The open devices that are ours: a user who closed one may have got its number again, for a file of his own.
plot_devices <- function() {
  listed <- grDevices::dev.list()
  Filter(function(device) names(listed)[match(device, listed)] == "png" && is_plot_device(device), listed)
}

is_plot_device <- function(device) {
  pages <- open_pages[[as.character(device)]]
  if (is.null(pages)) return(FALSE)
  file <- attr(.Devices[[device]], "filepath")
  is.null(file) || startsWith(basename(file), paste0("series", pages$series, "-"))
}

# The drawing on an open device, with the steps of it that can be seen; NULL when there are none.
drawing_of <- function(device) {
  current <- grDevices::dev.cur()
  on.exit(grDevices::dev.set(current))
  grDevices::dev.set(device)
  plot <- tryCatch(grDevices::recordPlot(), error = function(e) NULL)
  marks <- marks_of(plot)
  if (length(marks) == 0L) NULL else list(plot = plot, marks = marks)
}

marks_of <- function(plot) {
  settings <- c("C_par", "C_layout", "C_plot_new", "palette", "palette2")
  Filter(function(step) {
    routine <- step[[2L]][[1L]]
    !(is.list(routine) && !is.null(routine$name) && routine$name %in% settings)
  }, as.list(plot[[1L]]))
}

# After each expression: pages that it finished, and whether it went on with one that was shown in an earlier run.
after_expression <- function() {
  if (length(ls(open_pages)) == 0L) return(invisible())
  send_finished_pages()
  for (device in plot_devices()) {
    pages <- open_pages[[as.character(device)]]
    if (!is.null(pages$shown) && !pages$changed) pages$changed <- !identical(drawing_of(device)$marks, pages$shown)
  }
}

# At the end of a run: the pages that are still open.
show_open_pages <- function() {
  if (length(ls(open_pages)) == 0L) return(invisible())
  send_finished_pages()
  for (device in plot_devices()) {
    pages <- open_pages[[as.character(device)]]
    drawing <- drawing_of(device)
    if (is.null(drawing) || identical(drawing$marks, pages$shown)) next
    draw_again(drawing$plot)
    pages$shown <- drawing$marks
    pages$changed <- FALSE
  }
}

draw_again <- function(drawing) {
  current <- grDevices::dev.cur()
  file <- file.path(plot_directory(), "open-page.png")
  tryCatch({
    png_device(file)
    tryCatch(grDevices::replayPlot(drawing), finally = grDevices::dev.off())
  }, error = function(e) NULL)
  if (current > 1L) grDevices::dev.set(current)
  send_page(file)
}
