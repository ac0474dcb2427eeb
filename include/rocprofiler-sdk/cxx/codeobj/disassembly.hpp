/* rocprofiler-sdk for C++: what is in a code object: its bytes by URI, its functions, its instructions.
 *
 * Instructions are read by amd_comgr: with its header, programs are linked with it; without, ReadInstruction() throws.
 */
#ifndef ROCPROFILER_SDK_CXX_CODEOBJ_DISASSEMBLY_HPP_
#define ROCPROFILER_SDK_CXX_CODEOBJ_DISASSEMBLY_HPP_

#include <elf.h>
#include <algorithm>
#include <cctype>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#if defined(__has_include)
#    if __has_include(<amd_comgr/amd_comgr.h>)
#        define ROCPROFILER_SDK_HAVE_COMGR 1
#        include <amd_comgr/amd_comgr.h>
#    endif
#endif

namespace rocprofiler
{
namespace sdk
{
namespace codeobj
{
namespace disassembly
{
/* The bytes that a code object's URI names: file://PATH, with %-escapes and perhaps #offset=N&size=N. */
class CodeObjectBinary
{
public:
    /* Throws std::runtime_error if it is no file, or one that cannot be read. */
    explicit CodeObjectBinary(const std::string& uri) : m_uri(uri)
    {
        const size_t colon = uri.find("://");
        std::string scheme = uri.substr(0, colon == std::string::npos ? 0 : colon);
        for (char& letter : scheme)
            letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
        if (scheme != "file") throw std::runtime_error("not the URI of a file: " + uri);
        const size_t begin = colon + 3;
        const size_t end = std::min(uri.find_first_of("#?", begin), uri.size());
        const std::string path = unescaped(uri.substr(begin, end - begin));
        const std::string words = uri.substr(std::min(end + 1, uri.size()));
        const uint64_t offset = word(words, "offset").value_or(0);
        const std::optional<uint64_t> size = word(words, "size");

        std::ifstream file(path, std::ios::binary | std::ios::ate);
        if (!file) throw std::runtime_error("cannot open " + path);
        const uint64_t there = static_cast<uint64_t>(file.tellg());
        if (offset > there || size.value_or(0) > there - offset)
            throw std::runtime_error("the file is shorter than its URI says: " + uri);
        buffer.resize(size.value_or(there - offset));
        file.seekg(static_cast<std::streamoff>(offset));
        if (!file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())))
            throw std::runtime_error("cannot read " + path);
    }

    std::string m_uri;
    std::vector<char> buffer;

private:
    static std::string unescaped(const std::string& text)
    {
        std::string out;
        for (size_t at = 0; at < text.size(); ++at) {
            const bool is_escape = text[at] == '%' && at + 2 < text.size()
                                   && std::isxdigit(static_cast<unsigned char>(text[at + 1])) != 0
                                   && std::isxdigit(static_cast<unsigned char>(text[at + 2])) != 0;
            if (is_escape) {
                out += static_cast<char>(std::stoi(text.substr(at + 1, 2), nullptr, 16));
                at += 2;
            } else {
                out += text[at];
            }
        }
        return out;
    }

    /* The number after NAME= among words that & separates. */
    static std::optional<uint64_t> word(const std::string& words, const std::string& name)
    {
        size_t begin = 0;
        while (begin < words.size()) {
            const size_t end = std::min(words.find('&', begin), words.size());
            if (words.compare(begin, name.size() + 1, name + '=') == 0)
                return std::stoull(words.substr(begin + name.size() + 1, end - begin), nullptr, 0);
            begin = end + 1;
        }
        return std::nullopt;
    }
};

/* A function: its name, where it is in the file and in memory (before it is loaded), and its length in bytes. */
struct SymbolInfo
{
    std::string name{};
    uint64_t faddr = 0;
    uint64_t vaddr = 0;
    uint64_t mem_size = 0;
};

/* A code object that is being read. It keeps a copy of the bytes. Not for several threads at once. */
class DisassemblyInstance
{
public:
    DisassemblyInstance(const char* codeobj_data, uint64_t codeobj_size)
    : buffer(codeobj_data, codeobj_data + codeobj_size)
    {
        ElfHeader header;
        if (!at(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64
            || header.e_ident[EI_DATA] != ELFDATA2LSB)
            throw std::runtime_error("not a code object");
    }
    DisassemblyInstance(const DisassemblyInstance&) = delete;
    DisassemblyInstance& operator=(const DisassemblyInstance&) = delete;

#if defined(ROCPROFILER_SDK_HAVE_COMGR)
    ~DisassemblyInstance()
    {
        if (is_open) amd_comgr_destroy_disassembly_info(info);
    }

    /* The instruction at an offset of the file, in words, and its length. Throws std::runtime_error if there is none. */
    std::pair<std::string, size_t> ReadInstruction(uint64_t faddr)
    {
        if (faddr >= buffer.size()) throw std::runtime_error("no instruction there");
        open();
        uint64_t length = 0;
        last_instruction.clear();
        need(amd_comgr_disassemble_instruction(info, faddr, this, &length));
        return {last_instruction, length};
    }
#else
    std::pair<std::string, size_t> ReadInstruction(uint64_t)
    {
        throw std::runtime_error("this program was built without amd_comgr, which reads instructions");
    }
#endif

    /* All functions, by address. */
    std::map<uint64_t, SymbolInfo>& GetKernelMap()
    {
        symbol_map.clear();
        ElfHeader header;
        if (!at(0, header)) return symbol_map;
        for (unsigned wanted : {SHT_DYNSYM, SHT_SYMTAB}) {
            for (unsigned number = 0; number < header.e_shnum; ++number) {
                Section section;
                if (section_at(header, number, section) && section.sh_type == wanted) read_symbols(header, section);
            }
            // The one of the loader is enough, if there is one.
            if (!symbol_map.empty()) break;
        }
        return symbol_map;
    }

    /* Where an address lies in the file. Nothing: it is not from the file. */
    std::optional<uint64_t> va2fo(uint64_t vaddr) const
    {
        ElfHeader header;
        if (!at(0, header) || header.e_phentsize != sizeof(Elf64_Phdr)) return std::nullopt;
        for (unsigned number = 0; number < header.e_phnum; ++number) {
            Elf64_Phdr segment;
            if (!at(header.e_phoff + number * sizeof segment, segment)) break;
            if (segment.p_type == PT_LOAD && vaddr >= segment.p_vaddr && vaddr - segment.p_vaddr < segment.p_memsz)
                return vaddr - segment.p_vaddr + segment.p_offset;
        }
        return std::nullopt;
    }

    std::vector<char> buffer;
    std::string last_instruction;
    std::map<uint64_t, SymbolInfo> symbol_map;

private:
    using ElfHeader = Elf64_Ehdr;
    using Section = Elf64_Shdr;

    /* A struct of the file. False: it is not wholly there. */
    template <typename T>
    bool at(uint64_t offset, T& into) const
    {
        if (offset > buffer.size() || buffer.size() - offset < sizeof into) return false;
        std::memcpy(&into, buffer.data() + offset, sizeof into);
        return true;
    }

    bool section_at(const ElfHeader& header, unsigned number, Section& into) const
    {
        return header.e_shentsize == sizeof into && number < header.e_shnum
               && at(header.e_shoff + number * sizeof into, into);
    }

    void read_symbols(const ElfHeader& header, const Section& section)
    {
        Section names;
        if (!section_at(header, section.sh_link, names)) return;
        for (uint64_t offset = 0; offset + sizeof(Elf64_Sym) <= section.sh_size; offset += sizeof(Elf64_Sym)) {
            Elf64_Sym symbol;
            if (!at(section.sh_offset + offset, symbol)) return;
            const std::optional<uint64_t> faddr = va2fo(symbol.st_value);
            if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_shndx == SHN_UNDEF || !faddr) continue;
            symbol_map[symbol.st_value] = SymbolInfo{text(names, symbol.st_name), *faddr, symbol.st_value, symbol.st_size};
        }
    }

    std::string text(const Section& names, uint64_t offset) const
    {
        const uint64_t begin = names.sh_offset + offset;
        if (offset >= names.sh_size || begin >= buffer.size()) return {};
        const char* const first = buffer.data() + begin;
        return std::string(first, strnlen(first, std::min<uint64_t>(names.sh_size - offset, buffer.size() - begin)));
    }

#if defined(ROCPROFILER_SDK_HAVE_COMGR)
    static void need(amd_comgr_status_t status)
    {
        if (status == AMD_COMGR_STATUS_SUCCESS) return;
        const char* words = nullptr;
        amd_comgr_status_string(status, &words);
        throw std::runtime_error(std::string("amd_comgr: ") + (words != nullptr ? words : "an error without a name"));
    }

    void open()
    {
        if (is_open) return;
        amd_comgr_data_t data;
        need(amd_comgr_create_data(AMD_COMGR_DATA_KIND_EXECUTABLE, &data));
        std::string isa;
        amd_comgr_status_t status = amd_comgr_set_data(data, buffer.size(), buffer.data());
        if (status == AMD_COMGR_STATUS_SUCCESS) {
            size_t length = 0;
            status = amd_comgr_get_data_isa_name(data, &length, nullptr);
            isa.resize(length);
            if (status == AMD_COMGR_STATUS_SUCCESS) status = amd_comgr_get_data_isa_name(data, &length, isa.data());
        }
        amd_comgr_release_data(data);
        need(status);
        need(amd_comgr_create_disassembly_info(isa.c_str(), bytes_at, keep_words, [](uint64_t, void*) {}, &info));
        is_open = true;
    }

    static uint64_t bytes_at(uint64_t from, char* to, uint64_t size, void* me)
    {
        const std::vector<char>& bytes = static_cast<const DisassemblyInstance*>(me)->buffer;
        if (from >= bytes.size()) return 0;
        const uint64_t some = std::min<uint64_t>(size, bytes.size() - from);
        std::memcpy(to, bytes.data() + from, some);
        return some;
    }

    static void keep_words(const char* words, void* me)
    {
        const std::string_view all = words != nullptr ? words : "";
        const size_t begin = std::min(all.find_first_not_of(" \t"), all.size());
        static_cast<DisassemblyInstance*>(me)->last_instruction = std::string(all.substr(begin));
    }

    amd_comgr_disassembly_info_t info{};
    bool is_open = false;
#endif
};
} // namespace disassembly
} // namespace codeobj
} // namespace sdk
} // namespace rocprofiler

#endif
