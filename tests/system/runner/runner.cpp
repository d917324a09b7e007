// A worker without Python: speaks the protocol of docs/protocol.md and runs ONNX files of one
// Relu. Everything is in this file, so that it can be built with `g++ -O2 runner.cpp`.

#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

// ---- JSON: what the protocol needs of it

struct Json {
  enum Kind { Null, Bool, Number, Text, List, Object } kind = Null;
  bool flag = false;
  double number = 0;
  std::string text;
  std::vector<Json> items;
  std::map<std::string, Json> fields;

  const Json& at(const std::string& key) const {
    static const Json none;
    auto found = fields.find(key);
    return found == fields.end() ? none : found->second;
  }
  double or_else(double fallback) const { return kind == Number ? number : fallback; }
};

struct Parser {
  const std::string& s;
  size_t i = 0;

  void space() { while (i < s.size() && std::isspace((unsigned char)s[i])) ++i; }
  char peek() { space(); return i < s.size() ? s[i] : '\0'; }
  bool take(char c) { if (peek() != c) return false; ++i; return true; }

  Json value() {
    Json v;
    switch (peek()) {
      case '{':
        v.kind = Json::Object; ++i;
        if (take('}')) return v;
        do { std::string key = text(); take(':'); v.fields[key] = value(); } while (take(','));
        take('}');
        return v;
      case '[':
        v.kind = Json::List; ++i;
        if (take(']')) return v;
        do { v.items.push_back(value()); } while (take(','));
        take(']');
        return v;
      case '"': v.kind = Json::Text; v.text = text(); return v;
      case 't': v.kind = Json::Bool; v.flag = true; i += 4; return v;
      case 'f': v.kind = Json::Bool; i += 5; return v;
      case 'n': i += 4; return v;
      default: {
        size_t end = i;
        while (end < s.size() && std::strchr("+-.eE0123456789", s[end])) ++end;
        v.kind = Json::Number; v.number = std::stod(s.substr(i, end - i)); i = end;
        return v;
      }
    }
  }

  std::string text() {
    std::string out;
    if (!take('"')) throw std::runtime_error("bad JSON");
    while (i < s.size() && s[i] != '"') {
      if (s[i] == '\\') {
        char c = s[++i];
        if (c == 'u') { out += (char)std::stoi(s.substr(i + 1, 4), nullptr, 16); i += 4; }
        else out += c == 'n' ? '\n' : c == 't' ? '\t' : c;
      } else out += s[i];
      ++i;
    }
    ++i;
    return out;
  }
};

Json parse(const std::string& s) { return Parser{s}.value(); }

std::string quoted(const std::string& s) {
  std::string out = "\"";
  for (unsigned char c : s) {
    if (c == '"' || c == '\\') { out += '\\'; out += (char)c; }
    else if (c < 32) { char b[8]; std::snprintf(b, sizeof b, "\\u%04x", c); out += b; }
    else out += (char)c;
  }
  return out + "\"";
}

std::string slurp(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::ostringstream all;
  all << file.rdbuf();
  return all.str();
}

// ---- .npz: a zip of stored .npy members; `__names__` holds the names as JSON

struct Tensor { std::string descr = "<f4"; std::vector<long> shape; std::vector<float> values; };

template <class T> T little(const std::string& s, size_t at) {
  T value; std::memcpy(&value, s.data() + at, sizeof value); return value;
}

std::map<std::string, std::string> members(const std::string& zip) {
  size_t end = zip.rfind("PK\5\6");
  if (end == std::string::npos) throw std::runtime_error("not an .npz file");
  size_t at = little<uint32_t>(zip, end + 16);
  std::map<std::string, std::string> found;
  for (int left = little<uint16_t>(zip, end + 10); left > 0; --left) {
    uint32_t size = little<uint32_t>(zip, at + 24), local = little<uint32_t>(zip, at + 42);
    uint16_t name = little<uint16_t>(zip, at + 28), extra = little<uint16_t>(zip, at + 30);
    size_t data = local + 30 + little<uint16_t>(zip, local + 26) + little<uint16_t>(zip, local + 28);
    found[zip.substr(at + 46, name)] = zip.substr(data, size);
    at += 46 + name + extra + little<uint16_t>(zip, at + 32);
  }
  return found;
}

std::string body(const std::string& npy, std::string* header = nullptr) {
  bool old = npy[6] == 1;
  size_t length = old ? little<uint16_t>(npy, 8) : little<uint32_t>(npy, 8), start = old ? 10 : 12;
  if (header) *header = npy.substr(start, length);
  return npy.substr(start + length);
}

std::map<std::string, Tensor> read_npz(const std::string& path) {
  auto files = members(slurp(path));
  Json names = parse(body(files.at("__names__.npy")));
  std::map<std::string, Tensor> found;
  for (size_t k = 0; k < names.items.size(); ++k) {
    std::string header, raw = body(files.at("a" + std::to_string(k) + ".npy"), &header);
    if (header.find("'<f4'") == std::string::npos) throw std::runtime_error("float32 only");
    Tensor t;
    t.values.resize(raw.size() / 4);
    std::memcpy(t.values.data(), raw.data(), raw.size());
    found[names.items[k].text] = t;
  }
  return found;
}

uint32_t crc32(const std::string& s) {
  uint32_t crc = ~0u;
  for (unsigned char c : s) {
    crc ^= c;
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (0xEDB88320u & (0u - (crc & 1u)));
  }
  return ~crc;
}

template <class T> void put(std::string& s, T value) { s.append((const char*)&value, sizeof value); }

std::string npy(const std::string& descr, const std::string& shape, const std::string& raw) {
  std::string head = "{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }";
  head.resize((head.size() + 10) / 64 * 64 + 64 - 10 - 1, ' ');
  head += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  put<uint16_t>(out, (uint16_t)head.size());
  return out + head + raw;
}

void write_npz(const std::string& path, const std::string& name, const Tensor& t) {
  std::string names = "[" + quoted(name) + "]", shape = "(";
  for (long dim : t.shape) shape += std::to_string(dim) + ",";
  std::string raw((const char*)t.values.data(), t.values.size() * 4);
  std::string shown = "(" + std::to_string(names.size()) + ",)";
  std::vector<std::pair<std::string, std::string>> files = {
      {"__names__.npy", npy("|u1", shown, names)}, {"a0.npy", npy("<f4", shape + ")", raw)}};
  std::string zip, central;
  for (auto& [file, data] : files) {
    std::string fields;
    for (uint16_t v : {20, 0, 0, 0, 33}) put<uint16_t>(fields, v);
    put<uint32_t>(fields, crc32(data));
    put<uint32_t>(fields, (uint32_t)data.size());
    put<uint32_t>(fields, (uint32_t)data.size());
    put<uint16_t>(fields, (uint16_t)file.size());
    put<uint16_t>(fields, 0);
    central += "PK\1\2" + std::string("\x14\0", 2) + fields + std::string(10, '\0');
    put<uint32_t>(central, (uint32_t)zip.size());
    central += file;
    zip += "PK\3\4" + fields + file + data;
  }
  uint32_t offset = (uint32_t)zip.size();
  zip += central + "PK\5\6" + std::string(4, '\0');
  put<uint16_t>(zip, 2); put<uint16_t>(zip, 2);
  put<uint32_t>(zip, (uint32_t)central.size()); put<uint32_t>(zip, offset);
  zip += std::string(2, '\0');
  std::ofstream(path, std::ios::binary) << zip;
}

// ---- the compiler: one Relu

struct Refused : std::runtime_error {
  std::string type, reason;
  Refused(std::string type, std::string reason, const std::string& message)
      : std::runtime_error(message), type(type), reason(reason) {}
};

std::string folder, output_name;
Tensor input, output;
bool built = false;

int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
  timespec t; clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

void run() {
  if (!built) throw Refused("RunFailed", "no-program", "There is no program: compile one first.");
  for (size_t k = 0; k < input.values.size(); ++k) output.values[k] = std::max(0.0f, input.values[k]);
}

std::string compile(const Json& request) {
  int64_t start = now_ns();
  if (request.at("precision").text != "fp32")
    throw Refused("Unsupported", "precision", "This runner computes in fp32 only.");
  folder = request.at("root").text + "/b" + std::to_string((int)request.at("batch").number);
  Json batch = parse(slurp(folder + "/batch.json"));
  std::string model = slurp(folder + "/model.onnx");
  if (model.find("Relu") == std::string::npos || batch.at("outputs").items.size() != 1)
    throw Refused("Unsupported", "operator", "This runner runs one Relu, and nothing else.");
  const Json& spec = batch.at("outputs").items[0];
  output_name = spec.at("name").text;
  output = Tensor();
  size_t count = 1;
  for (const Json& dim : spec.at("shape").items) {
    output.shape.push_back((long)dim.number);
    count *= (size_t)dim.number;
  }
  output.values.assign(count, 0.0f);
  built = true;
  std::ostringstream s;
  s << "\"seconds\":" << (now_ns() - start) / 1e9
    << ",\"coverage\":{\"share\":1.0,\"unit\":\"nodes\"},\"device_memory_bytes\":null";
  return s.str();
}

std::string load(const Json& request) {
  int64_t start = now_ns();
  std::string path = request.at("path").text;
  if (path.empty()) path = folder + "/inputs-" + request.at("set").text + ".npz";
  auto arrays = read_npz(path);
  if (arrays.size() != 1 || arrays.begin()->second.values.size() != output.values.size())
    throw Refused("RunFailed", "input", "One input of the output's size is wanted.");
  input = arrays.begin()->second;
  return "\"seconds\":" + std::to_string((now_ns() - start) / 1e9);
}

std::string times(const Json& request) {
  std::ostringstream s;
  s << "\"ns\":[";
  for (int k = 0; k < (int)request.at("calls").or_else(1); ++k) {
    int64_t start = now_ns();
    run();
    s << (k ? "," : "") << now_ns() - start;
  }
  return s.str() + "]";
}

std::string slot(const Json& request) {
  const double none = 4e18;
  double slot_ns = request.at("slot_ns").or_else(1e8), group_ns = request.at("group_ns").or_else(1e7);
  double calls_min = request.at("calls_min").or_else(3), rewarm = request.at("rewarm_calls").or_else(3);
  double calls_max = request.at("calls_max").or_else(none), budget = request.at("budget_ns").or_else(none);
  if (calls_max == 0) calls_max = none;
  if (budget == 0) budget = none;
  int64_t began = now_ns(), start = began;
  run();
  int64_t first_ns = now_ns() - start, warm = 1;
  while ((warm < rewarm || now_ns() - began < group_ns) && now_ns() - began < budget) { run(); ++warm; }
  double call_ns = std::max(1.0, (double)(now_ns() - began) / warm);

  std::vector<double> sub;
  rusage before; getrusage(RUSAGE_SELF, &before);
  int64_t cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID), calls = 0, spent = 0;
  while (spent < slot_ns || calls < calls_min) {
    double left = std::min((budget - (now_ns() - began)) / call_ns, calls_max - calls);
    if (left < 1 && calls) break;
    int64_t size = (int64_t)std::max(1.0, std::min(left, std::ceil(group_ns / call_ns)));
    start = now_ns();
    for (int64_t k = 0; k < size; ++k) run();
    int64_t took = now_ns() - start;
    sub.push_back((double)took / size);
    calls += size; spent += took;
    call_ns = std::max(1.0, (double)took / size);
  }
  cpu = now_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu;
  rusage after; getrusage(RUSAGE_SELF, &after);
  long pages = 0, resident = 0;
  if (FILE* statm = std::fopen("/proc/self/statm", "r")) {
    if (std::fscanf(statm, "%ld %ld", &pages, &resident) != 2) resident = 0;
    std::fclose(statm);
  }
  std::ostringstream s;
  s.precision(17);
  s << "\"calls\":" << calls << ",\"slot_ns\":" << spent << ",\"first_ns\":" << first_ns
    << ",\"cpu_ns\":" << cpu << ",\"nivcsw\":" << after.ru_nivcsw - before.ru_nivcsw
    << ",\"rss_bytes\":" << resident * sysconf(_SC_PAGESIZE) << ",\"sub_ns\":[";
  for (size_t k = 0; k < sub.size(); ++k) s << (k ? "," : "") << sub[k];
  std::sort(sub.begin(), sub.end());
  size_t n = sub.size();
  s << "],\"call_ns\":" << (n % 2 ? sub[n / 2] : (sub[n / 2 - 1] + sub[n / 2]) / 2);
  return s.str();
}

std::string answer(const std::string& op, const Json& request) {
  if (op == "hello") return "\"pid\":" + std::to_string(getpid()) + ",\"python\":\"\",\"binding\":null";
  if (op == "import") return "\"version\":\"1.0\",\"packages\":{},\"variables\":{}";
  if (op == "probe") return "\"support\":{\"ok\":true,\"version\":\"1.0\",\"hint\":\"\"}";
  if (op == "compile") return compile(request);
  if (op == "save_artifact") return "\"bytes\":null";
  if (op == "load") return load(request);
  if (op == "run") return times(request);
  if (op == "slot") return slot(request);
  if (op == "close") return "\"closed\":true";
  if (op == "outputs") {
    write_npz(request.at("path").text, output_name, output);
    return "\"outputs\":[]";
  }
  throw Refused("Unsupported", "operation", "This runner has no operation " + op + ".");
}

// ---- the protocol

bool exactly(int fd, char* to, size_t count) {
  while (count) {
    ssize_t got = recv(fd, to, count, 0);
    if (got <= 0) return false;
    to += got; count -= (size_t)got;
  }
  return true;
}

void send_all(int fd, const std::string& text) {
  uint32_t n = (uint32_t)text.size();
  std::string out{(char)(n >> 24), (char)(n >> 16), (char)(n >> 8), (char)n};
  out += text;
  for (size_t done = 0; done < out.size();) {
    ssize_t sent = send(fd, out.data() + done, out.size() - done, MSG_NOSIGNAL);
    if (sent <= 0) std::exit(0);
    done += (size_t)sent;
  }
}

int main(int argc, char** argv) {
  prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
  int fd = std::atoi(argv[argc - 1]);
  unsigned char length[4];
  while (exactly(fd, (char*)length, 4)) {
    std::string text((size_t)length[0] << 24 | length[1] << 16 | length[2] << 8 | length[3], '\0');
    if (!exactly(fd, text.data(), text.size())) break;
    Json request = parse(text);
    std::string op = request.at("op").text, id = std::to_string((long)request.at("id").number);
    try {
      send_all(fd, "{\"id\":" + id + ",\"ok\":true," + answer(op, request) + "}");
    } catch (const std::exception& error) {
      auto* refused = dynamic_cast<const Refused*>(&error);
      send_all(fd, "{\"id\":" + id + ",\"ok\":false,\"error\":{\"type\":" +
                       quoted(refused ? refused->type : "RunFailed") + ",\"reason\":" +
                       quoted(refused ? refused->reason : "runner") + ",\"message\":" +
                       quoted(error.what()) + ",\"hint\":\"\",\"traceback\":\"\"}}");
    }
    if (op == "close") break;
  }
  return 0;
}
