#include "snapshot/image.h"

#include <gtest/gtest.h>

#include "snapshot/patch.h"

namespace atl::snapshot {
namespace {

using Wire = Field::Wire;

Message message(std::vector<Field> fields) {
  Message made;
  made.fields() = std::move(fields);
  return made;
}
Field number(std::uint32_t n, std::uint64_t value) { return {n, Wire::varint, value, {}}; }
Field bytes(std::uint32_t n, std::string value) { return {n, Wire::bytes, 0, std::move(value)}; }

std::string files_image(std::vector<Message> entries) {
  Image image{ImageKind::files, {}};
  for (const Message& entry : entries) image.records.push_back(entry.serialize());
  return serialize(image);
}

Message regular_file(std::string name, bool external) {
  std::vector<Field> fields = {number(1, 7), bytes(6, std::move(name)), number(8, 4096)};
  if (external) fields.push_back(number(9, 1));
  return message({number(1, 1), number(2, 7), bytes(3, message(fields).serialize())});
}

// The file of record `i`, taken apart.
Message file_of(const std::string& image, std::size_t i, std::uint32_t field) {
  auto parsed = parse_image(image, ImageKind::files);
  EXPECT_TRUE(parsed);
  auto entry = Message::parse(parsed->records.at(i));
  EXPECT_TRUE(entry);
  const Field* inner = entry->find(field, Wire::bytes);
  EXPECT_NE(inner, nullptr);
  return *Message::parse(inner->bytes);
}

TEST(Image, KeepsWhatItDoesNotKnow) {
  const Message original = message({number(1, 300),
                                    bytes(2, "text"),
                                    {3, Wire::fixed32, 0, "abcd"},
                                    {4, Wire::fixed64, 0, "abcdefgh"},
                                    number(99, ~0ull)});
  auto again = Message::parse(original.serialize());
  ASSERT_TRUE(again);
  EXPECT_EQ(again->serialize(), original.serialize());
  EXPECT_EQ(again->find(99, Wire::varint)->value, ~0ull);
  EXPECT_EQ(again->find(2, Wire::varint), nullptr);
}

TEST(Image, RefusesWhatIsCutOff) {
  const std::string whole = files_image({regular_file("/a", false), regular_file("/b", true)});
  ASSERT_TRUE(parse_image(whole, ImageKind::files));
  const std::size_t first = 8 + 4 + regular_file("/a", false).serialize().size();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    if (size == 8 || size == first) continue;  // ends of records
    auto parsed = parse_image(whole.substr(0, size), ImageKind::files);
    ASSERT_FALSE(parsed) << size;
    EXPECT_EQ(parsed.error().code, Errc::data_loss);
  }
}

TEST(Image, RefusesAnotherKindAndMadeUpLengths) {
  const std::string files = files_image({});
  EXPECT_FALSE(parse_image(files, ImageKind::user_namespace));
  EXPECT_FALSE(parse_image(files + std::string("\xff\xff\xff\xff", 4), ImageKind::files));
  EXPECT_FALSE(Message::parse(std::string("\x12\xff\xff\xff\xff\x0f", 6)));  // length of 4 GB
  EXPECT_FALSE(Message::parse(std::string(11, '\xff')));                     // no end of a number
  EXPECT_FALSE(Message::parse(std::string("\x03", 1)));                      // a group
  EXPECT_FALSE(Message::parse(std::string("\x00\x01", 2)));                  // field 0
}

TEST(Image, Zigzag) {
  for (const std::int32_t value : {0, 1, -1, 143, INT32_MAX, INT32_MIN})
    EXPECT_EQ(from_zigzag(to_zigzag(value)), value);
  EXPECT_EQ(to_zigzag(143), 286u);
}

TEST(Patch, MakesExternalFilesOrdinary) {
  EXPECT_EQ(external_file(0x54, 0x15c105), "file[54:15c105]");
  const std::string image =
      files_image({regular_file("file[54:1]", true), regular_file("file[54:2]", true),
                   regular_file("file[54:1]", false)});
  auto patched = patch_files(image, {{{"file[54:1]", "/usr/bin/python3"}}, 143});
  ASSERT_TRUE(patched);
  const Message first = file_of(*patched, 0, 3);
  EXPECT_EQ(first.find(6, Wire::bytes)->bytes, "/usr/bin/python3");
  EXPECT_EQ(first.find(7, Wire::varint)->value, 286u);
  EXPECT_EQ(first.find(9, Wire::varint), nullptr);
  EXPECT_EQ(first.find(8, Wire::varint)->value, 4096u);
  // Not in the list, and no external file at all.
  EXPECT_EQ(file_of(*patched, 1, 3).find(9, Wire::varint)->value, 1u);
  EXPECT_EQ(file_of(*patched, 2, 3).find(6, Wire::bytes)->bytes, "file[54:1]");
}

TEST(Patch, GivesSocketsOfNobodyToRoot) {
  const auto socket = [](std::uint64_t user, std::uint64_t group) {
    const Message owner = message({number(1, 0140660), number(2, user), number(3, group)});
    return message({number(1, 5),
                    bytes(16, message({number(1, 3), bytes(11, "/x"), bytes(13, owner.serialize())})
                                  .serialize())});
  };
  auto patched = patch_files(files_image({socket(0xffffffff, 0xffffffff), socket(1000, 5)}), {});
  ASSERT_TRUE(patched);
  const auto owner_of = [&](std::size_t i) {
    return *Message::parse(file_of(*patched, i, 16).find(13, Wire::bytes)->bytes);
  };
  EXPECT_EQ(owner_of(0).find(2, Wire::varint)->value, 0u);
  EXPECT_EQ(owner_of(0).find(3, Wire::varint)->value, 0u);
  EXPECT_EQ(owner_of(0).find(1, Wire::varint)->value, 0140660u);
  EXPECT_EQ(owner_of(1).find(2, Wire::varint)->value, 1000u);
}

TEST(Patch, LetsPeriodicTimersTickOn) {
  const auto timer = [](std::uint64_t left, std::uint64_t every) {
    return message({number(1, 7), bytes(12, message({number(1, 4), number(7, 0), number(8, left),
                                                     number(9, 0), number(10, every)})
                                                .serialize())});
  };
  auto patched = patch_files(files_image({timer(0, 500), timer(20, 500), timer(0, 0)}), {});
  ASSERT_TRUE(patched);
  const auto left = [&](std::size_t i) {
    return file_of(*patched, i, 12).find(8, Wire::varint)->value;
  };
  EXPECT_EQ(left(0), 500u);
  EXPECT_EQ(left(1), 20u);
  EXPECT_EQ(left(2), 0u);
}

std::string namespace_image(std::vector<Message> user_maps, std::vector<Message> group_maps) {
  Message maps;
  for (const Message& map : user_maps) maps.fields().push_back(bytes(1, map.serialize()));
  for (const Message& map : group_maps) maps.fields().push_back(bytes(2, map.serialize()));
  return serialize(Image{ImageKind::user_namespace, {maps.serialize()}});
}

TEST(Patch, ChangesIds) {
  const Message map = message({number(1, 0), number(2, 655360000), number(3, 65536)});
  auto patched = patch_ids(namespace_image({map}, {map}), 720896000, 65536);
  ASSERT_TRUE(patched);
  const Message expected = message({number(1, 0), number(3, 65536), number(2, 720896000)});
  EXPECT_EQ(*patched, namespace_image({expected}, {expected}));
}

TEST(Patch, RefusesOtherIds) {
  const Message map = message({number(1, 0), number(2, 655360000), number(3, 65536)});
  const Message all = message({number(1, 0), number(2, 0), number(3, 0xffffffff)});
  const Message shifted = message({number(1, 1), number(2, 655360000), number(3, 65536)});
  for (const std::string& image : {namespace_image({map, map}, {map}), namespace_image({map}, {}),
                                   namespace_image({all}, {map}), namespace_image({map}, {shifted}),
                                   serialize(Image{ImageKind::user_namespace, {}})}) {
    auto patched = patch_ids(image, 720896000, 65536);
    ASSERT_FALSE(patched);
    EXPECT_EQ(patched.error().code, Errc::data_loss);
  }
}

TEST(Patch, HostName) {
  const std::string image = serialize(
      Image{ImageKind::host_name, {message({bytes(1, "e2b"), bytes(2, "(none)")}).serialize()}});
  auto patched = patch_host_name(image, "e2b-copy");
  ASSERT_TRUE(patched);
  auto names = Message::parse(parse_image(*patched, ImageKind::host_name)->records.at(0));
  EXPECT_EQ(names->find(1, Wire::bytes)->bytes, "e2b-copy");
  EXPECT_EQ(names->find(2, Wire::bytes)->bytes, "(none)");
}

TEST(Patch, LinksOfRemovedNames) {
  const auto file = [](std::uint64_t id, std::string name) {
    return message(
        {number(1, 1), number(2, id), bytes(3, message({bytes(6, std::move(name))}).serialize())});
  };
  const std::string files = files_image(
      {file(4, "/home/user/a"), file(5, "/home/user/link_remap.5"), file(6, "/home/user/b")});
  const auto remaps = [](std::vector<Message> entries) {
    Image image{ImageKind::remaps, {}};
    for (const Message& entry : entries) image.records.push_back(entry.serialize());
    return serialize(image);
  };
  const Message linked = message({number(1, 4), number(2, 5), number(3, 0)});
  const Message ghost = message({number(1, 6), number(2, 9), number(3, 1)});
  auto found = link_remaps(remaps({linked, ghost}), files);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 1u);
  EXPECT_EQ(found->front().removed, "home/user/a");
  EXPECT_EQ(found->front().link, "home/user/link_remap.5");
  EXPECT_FALSE(link_remaps(remaps({message({number(1, 4), number(2, 77)})}), files));
}

TEST(Patch, RootMount) {
  const auto mount = [](std::uint64_t id, std::string path) {
    return message({number(2, id), bytes(7, std::move(path))}).serialize();
  };
  EXPECT_EQ(
      *root_mount(serialize(Image{ImageKind::mountpoints, {mount(147, "/proc"), mount(143, "/")}})),
      143);
  EXPECT_FALSE(root_mount(serialize(Image{ImageKind::mountpoints, {mount(147, "/proc")}})));
}

}  // namespace
}  // namespace atl::snapshot
