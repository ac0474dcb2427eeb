/* rocprofiler-sdk for C++: instructions of loaded code objects by address, with the lines of source that they were made of.
 *
 * Lines are read by elfutils' libdw: with its header, programs are linked with it (-ldw); without, there are none.
 */
#ifndef ROCPROFILER_SDK_CXX_CODEOBJ_CODE_PRINTING_HPP_
#define ROCPROFILER_SDK_CXX_CODEOBJ_CODE_PRINTING_HPP_

#include <rocprofiler-sdk/cxx/codeobj/disassembly.hpp>
#include <rocprofiler-sdk/cxx/codeobj/segment.hpp>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iostream>
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
#    if __has_include(<elfutils/libdw.h>)
#        define ROCPROFILER_SDK_HAVE_LIBDW 1
#        include <elfutils/libdw.h>
#        include <libelf.h>
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
using marker_id_t = segment::marker_id_t;

struct Instruction
{
    Instruction() = default;
    Instruction(std::string&& words, size_t length) : inst(std::move(words)), size(length) {}

    std::string inst{};        /* in words */
    std::string comment{};     /* FILE:LINE, several separated by blanks */
    uint64_t faddr{0};         /* offset in the file */
    uint64_t vaddr{0};         /* address in the code object */
    size_t size{0};            /* bytes */
    uint64_t ld_addr{0};       /* where it is loaded, or 0 */
    marker_id_t codeobj_id{0}; /* of which code object, or 0 */
};

/* The bytes of a code object: its functions, its instructions, its lines. */
class CodeobjDecoderComponent
{
public:
    /* Throws std::runtime_error if they are no code object. */
    CodeobjDecoderComponent(const char* codeobj_data, uint64_t codeobj_size)
    : disassembly(std::make_unique<DisassemblyInstance>(codeobj_data, codeobj_size))
    {
        m_symbol_map = disassembly->GetKernelMap();
        read_lines();
    }

    std::optional<uint64_t> va2fo(uint64_t vaddr) const { return disassembly->va2fo(vaddr); }

    /* The instruction at an offset of the file, which has that address. Throws std::runtime_error if there is none. */
    std::unique_ptr<Instruction> disassemble_instruction(uint64_t faddr, uint64_t vaddr)
    {
        std::pair<std::string, size_t> read = disassembly->ReadInstruction(faddr);
        auto made = std::make_unique<Instruction>(std::move(read.first), read.second);
        made->faddr = faddr;
        made->vaddr = vaddr;
        const auto line = m_line_number_map.find(segment::address_range_t{vaddr, 0, 0});
        if (line != m_line_number_map.end()) made->comment = line->second;
        return made;
    }

    std::map<uint64_t, SymbolInfo> m_symbol_map{};
    std::vector<std::shared_ptr<Instruction>> instructions{};
    std::unique_ptr<DisassemblyInstance> disassembly{};
    std::map<segment::address_range_t, std::string> m_line_number_map{};

private:
#if defined(ROCPROFILER_SDK_HAVE_LIBDW)
    void read_lines()
    {
        std::vector<char>& bytes = disassembly->buffer;
        std::unique_ptr<Elf, int (*)(Elf*)> file(elf_memory(bytes.data(), bytes.size()), elf_end);
        if (!file) return;
        std::unique_ptr<Dwarf, int (*)(Dwarf*)> lines(dwarf_begin_elf(file.get(), DWARF_C_READ, nullptr), dwarf_end);
        if (!lines) return;
        std::map<uint64_t, std::string> at;
        Dwarf_Off unit = 0;
        Dwarf_Off next = 0;
        size_t header = 0;
        for (; dwarf_nextcu(lines.get(), unit, &next, &header, nullptr, nullptr, nullptr) == 0; unit = next) {
            Dwarf_Die die;
            Dwarf_Lines* of = nullptr;
            size_t count = 0;
            if (dwarf_offdie(lines.get(), unit + header, &die) == nullptr || dwarf_getsrclines(&die, &of, &count) != 0) continue;
            for (size_t number = 0; number < count; ++number)
                read_line(dwarf_onesrcline(of, number), at);
        }
        for (auto one = at.begin(); one != at.end(); ++one) {
            const auto after = std::next(one);
            const uint64_t end = after == at.end() ? one->first + 1 : after->first;
            m_line_number_map.emplace(segment::address_range_t{one->first, end - one->first, 0}, one->second);
        }
    }

    static void read_line(Dwarf_Line* line, std::map<uint64_t, std::string>& at)
    {
        Dwarf_Addr address = 0;
        int number = 0;
        if (line == nullptr || dwarf_lineaddr(line, &address) != 0 || dwarf_lineno(line, &number) != 0 || number == 0) return;
        const char* const name = dwarf_linesrc(line, nullptr, nullptr);
        std::string& text = at[address];
        if (!text.empty()) text += ' ';
        text += std::string(name != nullptr ? name : "") + ':' + std::to_string(number);
    }
#else
    void read_lines() {}
#endif
};

/* A code object that is loaded at an address. */
class LoadedCodeobjDecoder
{
public:
    /* Of a file's path that ends in .out, or of a URI. Throws std::runtime_error if it cannot be read. */
    LoadedCodeobjDecoder(const char* filepath, uint64_t address, uint64_t memory_size)
    : load_addr(address), load_end(address + memory_size)
    {
        if (filepath == nullptr) throw std::runtime_error("no file");
        std::string name = filepath;
        const bool is_path = name.size() >= 4 && name.compare(name.size() - 4, 4, ".out") == 0 && name.find("://") == std::string::npos;
        const CodeObjectBinary binary(is_path ? "file://" + escaped(name) : name);
        decoder = std::make_unique<CodeobjDecoderComponent>(binary.buffer.data(), binary.buffer.size());
    }

    /* Of bytes, which are copied. */
    LoadedCodeobjDecoder(const void* data, uint64_t size, uint64_t address, size_t memory_size)
    : load_addr(address), load_end(address + memory_size)
    , decoder(std::make_unique<CodeobjDecoderComponent>(static_cast<const char*>(data), size))
    {
    }

    /* The instruction that is loaded at an address. NULL: none. Throws std::runtime_error if it cannot be read. */
    std::unique_ptr<Instruction> get(uint64_t address)
    {
        if (address < load_addr) return nullptr;
        const std::optional<uint64_t> faddr = decoder->va2fo(address - load_addr);
        if (!faddr) return nullptr;
        std::unique_ptr<Instruction> made = decoder->disassemble_instruction(*faddr, address - load_addr);
        if (made->size == 0) return nullptr;
        made->ld_addr = address;
        return made;
    }

    uint64_t begin() const { return load_addr; }
    uint64_t end() const { return load_end; }
    uint64_t size() const { return load_end - load_addr; }
    bool inrange(uint64_t address) const { return address >= load_addr && address < load_end; }

    /* The name of the function that begins at an address, or NULL. */
    const char* getSymbolName(uint64_t address) const
    {
        const auto found = decoder->m_symbol_map.find(address - load_addr);
        return found == decoder->m_symbol_map.end() ? nullptr : found->second.name.c_str();
    }

    std::map<uint64_t, SymbolInfo>& getSymbolMap() const { return decoder->m_symbol_map; }

    const uint64_t load_addr;

private:
    static std::string escaped(const std::string& path)
    {
        std::string out;
        for (char letter : path)
            out += letter == '%' ? "%25" : letter == '#' ? "%23" : letter == '?' ? "%3F" : std::string(1, letter);
        return out;
    }

    uint64_t load_end{0};
    std::unique_ptr<CodeobjDecoderComponent> decoder;
};

/* Code objects by id. */
class CodeobjMap
{
public:
    CodeobjMap() = default;
    virtual ~CodeobjMap() = default;

    /* Adds a code object, in place of one that has the id. Throws std::runtime_error if it cannot be read. */
    virtual void addDecoder(const char* filepath, marker_id_t id, uint64_t load_addr, uint64_t memsize)
    {
        decoders[id] = std::make_shared<LoadedCodeobjDecoder>(filepath, load_addr, memsize);
    }
    virtual void addDecoder(const void* data, size_t memory_size, marker_id_t id, uint64_t load_addr, uint64_t memsize)
    {
        decoders[id] = std::make_shared<LoadedCodeobjDecoder>(data, memory_size, load_addr, memsize);
    }

    virtual bool removeDecoderbyId(marker_id_t id) { return decoders.erase(id) != 0; }

    /* The instruction at an address of a code object, counted from its begin. NULL: none. */
    std::unique_ptr<Instruction> get(marker_id_t id, uint64_t offset)
    {
        const auto found = decoders.find(id);
        if (found == decoders.end()) return nullptr;
        std::unique_ptr<Instruction> made = found->second->get(found->second->begin() + offset);
        if (made) made->codeobj_id = id;
        return made;
    }

    const char* getSymbolName(marker_id_t id, uint64_t offset)
    {
        const auto found = decoders.find(id);
        if (found == decoders.end() || !found->second->inrange(found->second->begin() + offset)) return nullptr;
        return found->second->getSymbolName(found->second->begin() + offset);
    }

protected:
    std::unordered_map<marker_id_t, std::shared_ptr<LoadedCodeobjDecoder>> decoders{};
};

/* Code objects by id and by the addresses that they are loaded at. Not for several threads at once. */
class CodeobjAddressTranslate : public CodeobjMap
{
public:
    using CodeobjMap::getSymbolName;

    void addDecoder(const char* filepath, marker_id_t id, uint64_t load_addr, uint64_t memsize) override
    {
        CodeobjMap::addDecoder(filepath, id, load_addr, memsize);
        table.insert(segment::address_range_t{load_addr, memsize, id});
    }
    void addDecoder(const void* data, size_t memory_size, marker_id_t id, uint64_t load_addr, uint64_t memsize) override
    {
        CodeobjMap::addDecoder(data, memory_size, id, load_addr, memsize);
        table.insert(segment::address_range_t{load_addr, memsize, id});
    }

    virtual bool removeDecoder(marker_id_t id, uint64_t load_addr)
    {
        return table.remove(load_addr) && removeDecoderbyId(id);
    }

    /* The instruction that is loaded at an address. Throws std::out_of_range if no code object is there. */
    std::unique_ptr<Instruction> get(uint64_t address)
    {
        const segment::address_range_t range = table.find_codeobj_in_range(address);
        return CodeobjMap::get(range.id, address - range.addr);
    }

    /* The same with an id; 0 stands for none, and `offset` for an address. */
    std::unique_ptr<Instruction> get(marker_id_t id, uint64_t offset)
    {
        return id == 0 ? get(offset) : CodeobjMap::get(id, offset);
    }

    const char* getSymbolName(uint64_t address)
    {
        for (const auto& one : decoders)
            if (one.second->inrange(address)) return one.second->getSymbolName(address);
        return nullptr;
    }

    /* All functions by the addresses that they are loaded at. */
    std::map<uint64_t, SymbolInfo> getSymbolMap() const
    {
        std::map<uint64_t, SymbolInfo> all;
        for (const auto& one : decoders)
            for (const auto& symbol : one.second->getSymbolMap())
                all[symbol.first + one.second->load_addr] = symbol.second;
        return all;
    }

    /* Those of one code object, by its own addresses. */
    std::map<uint64_t, SymbolInfo> getSymbolMap(marker_id_t id) const
    {
        const auto found = decoders.find(id);
        return found == decoders.end() ? std::map<uint64_t, SymbolInfo>{} : found->second->getSymbolMap();
    }

private:
    segment::CodeobjTableTranslator table{};
};
} // namespace disassembly
} // namespace codeobj
} // namespace sdk
} // namespace rocprofiler

#endif
