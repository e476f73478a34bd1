// The little XML that S3 servers answer: elements with text, by the names they have.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace atl::blobs {

// The texts of elements without children, grouped by the element that repeats: for a list each
// <Contents> or <Upload> is a record of its own.
class XmlFields {
 public:
  using Record = std::map<std::string, std::string>;

  // Of an element outside of the records; empty: none.
  std::string first(const std::string& name) const;
  const std::vector<Record>& records() const { return records_; }
  bool well_formed() const { return well_formed_; }

 private:
  friend XmlFields parse_fields(std::string_view, std::string_view);
  Record outside_;
  std::vector<Record> records_;
  bool well_formed_ = false;
};

// `record` names the element that repeats; empty: none. Entities beyond the five are refused with
// all declarations of types.
XmlFields parse_fields(std::string_view xml, std::string_view record = {});

std::string xml_escaped(std::string_view text);

}  // namespace atl::blobs
