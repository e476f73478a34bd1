# A data frame as an HTML table: its first rows and columns.

html_rows <- 60L
html_columns <- 40L

html_of <- function(value) {
  if (!is.data.frame(value) || ncol(value) == 0L) return(raw())
  tryCatch(utf8(html_table(value)), error = function(e) raw())
}

html_escape <- function(text) {
  text <- gsub("&", "&amp;", enc2utf8(text), fixed = TRUE)
  text <- gsub("<", "&lt;", text, fixed = TRUE)
  gsub(">", "&gt;", text, fixed = TRUE)
}

html_table <- function(frame) {
  rows <- min(nrow(frame), html_rows)
  columns <- min(ncol(frame), html_columns)
  shown <- as.data.frame(frame)[seq_len(rows), seq_len(columns), drop = FALSE]
  # A cell of a list column may be a whole data set.
  cells <- lapply(shown, function(column) html_escape(substr(trimws(format(column)), 1L, 200L)))
  names <- if (.row_names_info(shown) > 0L) html_escape(row.names(shown)) else as.character(seq_len(rows))
  head <- paste0("<th>", c("", html_escape(names(shown))), "</th>", collapse = "")
  columns <- lapply(cells, function(x) paste0("<td>", x, "</td>"))
  body <- do.call(paste0, c(list("<tr><th>", names, "</th>"), unname(columns), "</tr>\n"))
  if (rows == 0L) body <- character()
  size <- sprintf("<caption>A data.frame: %d \u00d7 %d</caption>\n", nrow(frame), ncol(frame))
  head <- paste0("<thead><tr>", head, "</tr></thead>\n")
  paste0("<table>\n", size, head, "<tbody>\n", paste(body, collapse = ""), "</tbody>\n</table>")
}
