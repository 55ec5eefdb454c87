"""Textures and surfaces of kernels that libcuda launches: each shape, format, filter and address mode, and surfaces with
what they do outside. Each line of the output is a case with all that its kernel read or left, to be compared with
another libcuda's. Reads of the nearest texel are compared here with a few lines of Python as well: what differs, or
fails, ends it with 1 and says what.

    textures.py            all cases
    textures.py MISTAKE    launches a kernel with a handle that leads nowhere, and prints how its context ended
"""
import ctypes
import math
import random
import struct
import sys

cuda = ctypes.CDLL("libcuda.so.1")
Size, Pointer, Handle = ctypes.c_size_t, ctypes.c_uint64, ctypes.c_void_p
# CU_CTX_SCHED_YIELD: who waits lets the simulator have the processor.
YIELDS = 2

# CUarray_format: its number, bits of a channel, and how Python unpacks one.
FORMATS = {
    "u8": (0x01, 8, "B"), "u16": (0x02, 16, "H"), "u32": (0x03, 32, "I"),
    "s8": (0x08, 8, "b"), "s16": (0x09, 16, "h"), "s32": (0x0A, 32, "i"),
    "f16": (0x10, 16, "e"), "f32": (0x20, 32, "f"),
}
WRAP, CLAMP, MIRROR, BORDER = range(4)
POINT, LINEAR = 0, 1
AS_INTEGERS, NORMALIZED = 1, 2
LAYERED, SURFACE, CUBE = 1, 2, 4
HOST, DEVICE, ARRAY = 1, 2, 3

# Name: the shape in an instruction, coordinates of floats and of integers, axes, planes, flags of an array.
SHAPES = {
    "1d": ("1d", "{%f1}", "{%r1}", 1, 0, 0),
    "2d": ("2d", "{%f1, %f2}", "{%r1, %r2}", 2, 0, 0),
    "3d": ("3d", "{%f1, %f2, %f3, %f3}", "{%r1, %r2, %r3, %r3}", 3, 0, 0),
    "a1d": ("a1d", "{%r4, %f1}", "{%r4, %r1}", 1, 3, LAYERED),
    "a2d": ("a2d", "{%r4, %f1, %f2, %f2}", "{%r4, %r1, %r2, %r2}", 2, 3, LAYERED),
    "cube": ("cube", "{%f1, %f2, %f3, %f3}", None, 2, 6, CUBE),
    "acube": ("acube", "{%r4, %f1, %f2, %f3}", None, 2, 12, CUBE | LAYERED),
}
# How coordinates change in two directions. Of three axes NVIDIA's code makes neighbours, by instructions that are not run.
GRADIENTS = {
    "1d": ("{%f4}", "{%f3}"), "a1d": ("{%f4}", "{%f3}"),
    "2d": ("{%f4, %f3}", "{%f2, %f4}"), "a2d": ("{%f4, %f3}", "{%f2, %f4}"),
}
LANES = 32
# Words that each lane is given, four floats and six integers, and that it leaves.
GIVEN, LEFT = 10, 4


def call(name, *args):
    result = getattr(cuda, name)(*args)
    if result:
        sys.exit(f"{name} ended with {result}")


def made(kind, name, *args):
    """What a function returns through its first argument."""
    value = kind()
    call(name, ctypes.byref(value), *args)
    return value


def bodies():
    """Each kernel by its name."""
    out, to = {}, "{%o1, %o2, %o3, %o4}"
    for name, (shape, floats, integers, *_) in SHAPES.items():
        out[f"tex_{name}"] = f"tex.{shape}.v4.s32.f32 {to}, [%rd2, {floats}];"
        out[f"level_{name}"] = f"tex.level.{shape}.v4.s32.f32 {to}, [%rd2, {floats}], 0f00000000;"
        out[f"lod_{name}"] = f"tex.level.{shape}.v4.s32.f32 {to}, [%rd2, {floats}], %f4;"
        if integers is None:
            continue
        out[f"load_{name}"] = f"tex.{shape}.v4.s32.s32 {to}, [%rd2, {integers}];"
        out[f"exact_{name}"] = f"tex.level.{shape}.v4.s32.s32 {to}, [%rd2, {integers}], %r5;"
        if name in GRADIENTS:
            right, down = GRADIENTS[name]
            out[f"grad_{name}"] = f"tex.grad.{shape}.v4.s32.f32 {to}, [%rd2, {floats}], {right}, {down};"
        for outside in ("trap", "clamp", "zero"):
            out[f"suld_{name}_{outside}"] = f"suld.b.{shape}.b32.{outside} %o1, [%rd2, {integers}];"
            out[f"sust_{name}_{outside}"] = f"sust.b.{shape}.b32.{outside} [%rd2, {integers}], %r5;"
    for channel in "rgba":
        out[f"gather_{channel}"] = f"tld4.{channel}.2d.v4.s32.f32 {to}, [%rd2, {{%f1, %f2}}];"
    out["offset"] = f"tex.2d.v4.s32.f32 {to}, [%rd2, {{%f1, %f2}}], {{%r1, %r2}};"
    for number, what in enumerate(("width", "height", "depth")):
        out[f"size_{what}"] = f"txq.{what}.b32 %o1, [%rd2];"
        out[f"level_{what}"] = f"txq.level.{what}.b32 %o1, [%rd2], %r5;"
    halves, place = "{%h1, %h2, %h3, %h4}", "[%rd2, {%f1, %f2}]"
    pack = "mov.b32 %o1, {%h1, %h2}; mov.b32 %o2, {%h3, %h4};"
    out["half"] = f"tex.2d.v4.f16.f32 {halves}, {place}; {pack}"
    out["half_lod"] = f"tex.level.2d.v4.f16.f32 {halves}, {place}, %f4; {pack}"
    out["half_load"] = f"tex.2d.v4.f16.s32 {halves}, [%rd2, {{%r1, %r2}}]; {pack}"
    out["half_some"] = f"tex.2d.v4.f16.f32 {halves}, {place}; cvt.u32.u16 %o1, %h2; mov.b32 %o2, {{%h4, %h1}};"
    out["pairs"] = f"tex.2d.v2.f16x2.f32 {{%o1, %o2}}, {place};"
    place = "[%rd2, {%r1, %r2}]"
    for width, values, before, behind in (
        ("b8", "%h1", "cvt.u16.u32 %h1, %r5;", "cvt.u32.u16 %o1, %h1;"),
        ("b16", "%h1", "cvt.u16.u32 %h1, %r5;", "cvt.u32.u16 %o1, %h1;"),
        ("b64", "%rd3", "mov.b64 %rd3, {%r5, %r6};", "mov.b64 {%o1, %o2}, %rd3;"),
        ("v2.b32", "{%o1, %o2}", "mov.u32 %o1, %r5; mov.u32 %o2, %r6;", ""),
        ("v4.b32", to, "mov.u32 %o1, %r5; mov.u32 %o2, %r6; mov.u32 %o3, %r1; mov.u32 %o4, %r2;", ""),
    ):
        name = width.replace(".", "_")
        out[f"suld_{name}"] = f"suld.b.2d.{width}.trap {values}, {place}; {behind}"
        out[f"sust_{name}"] = f"{before} sust.b.2d.{width}.trap {place}, {values};"
    for operation in ("add", "min", "max"):
        out[f"sured_{operation}"] = f"sured.b.{operation}.2d.u32.trap {place}, %r5;"
    return out


def module():
    text = ".version 7.8\n.target sm_80\n.address_size 64\n"
    for name, body in bodies().items():
        text += f""".visible .entry {name}(.param .u64 data, .param .u64 texture) {{
          .reg .b32 %r<9>; .reg .b32 %o<5>; .reg .b16 %h<5>; .reg .b64 %rd<9>; .reg .f32 %f<5>;
          ld.param.u64 %rd1, [data]; ld.param.u64 %rd2, [texture];
          mov.u32 %r7, %tid.x; mad.wide.u32 %rd1, %r7, {(GIVEN + LEFT) * 4}, %rd1;
          ld.global.f32 %f1, [%rd1]; ld.global.f32 %f2, [%rd1+4]; ld.global.f32 %f3, [%rd1+8];
          ld.global.f32 %f4, [%rd1+12]; mov.u32 %o1, 0; mov.u32 %o2, 0; mov.u32 %o3, 0; mov.u32 %o4, 0;
        """
        text += "".join(f"ld.global.u32 %r{n + 1}, [%rd1+{16 + 4 * n}];" for n in range(6)) + body
        text += "".join(f"st.global.u32 [%rd1+{(GIVEN + n) * 4}], %o{n + 1};" for n in range(LEFT))
        text += "ret; }\n"
    return made(Handle, "cuModuleLoadData", text.encode() + b"\0")


def launch(module, name, handle, given):
    """What a kernel leaves: words for each lane."""
    data = b"".join(lane + bytes(4 * LEFT) for lane in given)
    memory = made(Pointer, "cuMemAlloc_v2", Size(len(data)))
    call("cuMemcpyHtoD_v2", memory, data, Size(len(data)))
    call("cuCtxSynchronize")
    function = made(Handle, "cuModuleGetFunction", module, name.encode())
    held = [memory, Pointer(handle.value)]
    pointers = (Handle * 2)(*[ctypes.cast(ctypes.byref(arg), Handle) for arg in held])
    call("cuLaunchKernel", function, 1, 1, 1, len(given), 1, 1, 0, None, pointers, None)
    result = cuda.cuCtxSynchronize()
    if result:
        print(name, result)
        sys.exit()
    found = ctypes.create_string_buffer(len(data))
    call("cuMemcpyDtoH_v2", found, memory, Size(len(data)))
    call("cuMemFree_v2", memory)
    step = 4 * (GIVEN + LEFT)
    return [struct.unpack_from("4I", found.raw, at + 4 * GIVEN) for at in range(0, len(data), step)]


class Image:
    """Texels, in an array, as a level of a mipmap, or in memory as a line or as rows with a pitch."""

    def __init__(self, where, format, channels, size, flags=0, data=None, handle=None):
        self.where, self.format, self.channels, self.flags = where, format, channels, flags
        self.code, bits, self.letter = FORMATS[format]
        self.texel = bits // 8 * channels
        # As cuArray3DCreate has it: no axis is zero; planes of any kind are the depth.
        self.size, self.counts = size, [max(axis, 1) for axis in size]
        self.row = self.counts[0] * self.texel
        self.data = data or self.fresh()
        wide, high, deep = size
        if where == "level":
            self.handle = handle
            self.copy(self.data, True)
            self.resource = struct.pack("I4xQ", 0, self.handle.value)
        elif where == "array":
            made_of = struct.pack("3Q3I4x", wide, high, deep, self.code, channels, flags)
            self.handle = made(Handle, "cuArray3DCreate_v2", made_of)
            self.copy(self.data, True)
            self.resource = struct.pack("I4xQ", 0, self.handle.value)
        elif where == "line":
            self.handle = made(Pointer, "cuMemAlloc_v2", Size(self.row))
            call("cuMemcpyHtoD_v2", self.handle, self.data, Size(self.row))
            self.resource = struct.pack("I4xQIIQ", 2, self.handle.value, self.code, channels, self.row)
        else:
            self.pitch = Size()
            self.handle = made(Pointer, "cuMemAllocPitch_v2", ctypes.byref(self.pitch), Size(self.row), Size(high), 4)
            for row in range(high):
                start, place = row * self.row, self.handle.value + row * self.pitch.value
                call("cuMemcpyHtoD_v2", Pointer(place), self.data[start : start + self.row], Size(self.row))
            self.resource = struct.pack(
                "I4xQIIQQQ", 3, self.handle.value, self.code, channels, wide, high, self.pitch.value
            )
        self.resource = self.resource.ljust(144, b"\0")

    def fresh(self):
        count = self.counts[0] * self.counts[1] * self.counts[2]
        source = random.Random(f"{self.format} {self.channels} {self.size}")
        if self.letter in "ef":
            values = [source.randrange(-4000, 4000) / 64 for _ in range(count * self.channels)]
            return struct.pack(f"{len(values)}{self.letter}", *values)
        return source.randbytes(count * self.texel)

    def copy(self, data, is_in):
        """All of the array from host memory, or to it."""
        buffer = ctypes.create_string_buffer(bytes(data), len(self.data))
        host = struct.pack("4QI4x6Q", 0, 0, 0, 0, HOST, ctypes.addressof(buffer), 0, 0, 0, self.row, self.counts[1])
        array = struct.pack("4QI4x6Q", 0, 0, 0, 0, ARRAY, 0, 0, self.handle.value, 0, 0, 0)
        sides = host + array if is_in else array + host
        call("cuMemcpy3D_v2", sides + struct.pack("3Q", self.row, self.counts[1], self.counts[2]))
        return buffer.raw

    def texture(self, modes, filter, flags, border=(0, 0, 0, 0), levels=(POINT, 0.0, 0.0, 0.0)):
        """`border` are the words of its channels, `levels` filter, bias and clamps of a mipmap."""
        described = struct.pack("6I", *modes, filter, flags, 0) + struct.pack("I3f", *levels)
        described += struct.pack("4I", *border) + bytes(48)
        return made(Pointer, "cuTexObjectCreate", self.resource, described, None)

    def surface(self):
        return made(Pointer, "cuSurfObjectCreate", self.resource)

    def at(self, x, y, z):
        """The channels of a texel, as the words that a read of it gives; missing ones are not told."""
        start = ((z * self.counts[1] + y) * self.counts[0] + x) * self.texel
        return struct.unpack_from(f"{self.channels}{self.letter}", self.data, start)

    def destroy(self):
        if self.where == "level":
            return
        call("cuArrayDestroy" if self.where == "array" else "cuMemFree_v2", self.handle)


class Mipmap:
    """An array with levels."""

    texture = Image.texture

    def __init__(self, format, channels, size, flags, count):
        made_of = struct.pack("3Q3I4x", *size, FORMATS[format][0], channels, flags)
        self.handle = made(Handle, "cuMipmappedArrayCreate", made_of, count)
        self.resource = struct.pack("I4xQ", 1, self.handle.value).ljust(144, b"\0")
        self.levels = []
        for number in range(count):
            level = made(Handle, "cuMipmappedArrayGetLevel", self.handle, number)
            found = ctypes.create_string_buffer(40)
            call("cuArray3DGetDescriptor_v2", found, level)
            size = struct.unpack_from("3Q", found.raw)
            self.levels.append(Image("level", format, channels, size, flags, handle=level))

    def destroy(self):
        call("cuMipmappedArrayDestroy", self.handle)


def given(source, image, is_normalized, is_cube, surface=None):
    """Words of the lanes. Of a surface: bytes of an access, and whether it may be outside."""
    lanes = []
    for _ in range(LANES):
        wide = 2.0 if is_normalized else 12.0
        floats = [source.randrange(-2000, 2001) / 1000 * wide for _ in range(4)]
        if is_cube:
            # Directions whose greatest part is a power of two: compilers divide by it with a reciprocal.
            floats = [source.randrange(-1000, 1001) / 1000 for _ in range(4)]
            floats[source.randrange(3)] = source.choice([1.0, -1.0, 2.0, -4.0])
        elif source.randrange(20) == 0:
            floats[source.randrange(3)] = source.choice([math.inf, -math.inf, math.nan, 1e30, -0.0])
        integers = [source.randrange(-4, 10) for _ in range(4)]
        if surface:
            width, may_be_outside = surface
            if may_be_outside:
                integers[0] *= 3 * width
            else:
                bounds = [image.row // width, image.counts[1], image.counts[2]]
                x, y, z = (source.randrange(bound) for bound in bounds)
                integers = [x * width, y, z, z]
        lanes.append(struct.pack("4f4i2I", *floats, *integers, source.getrandbits(32), source.getrandbits(32)))
    return lanes


def tell(name, words):
    print(name + ":", " ".join(",".join(f"{word:x}" for word in lane) for lane in words))


def size_of(shape, source):
    _, _, _, axes, planes, _ = SHAPES[shape]
    wide, high = source.randrange(3, 40), source.randrange(2, 30)
    if "cube" in shape:
        return wide, wide, planes
    return wide, high if axes > 1 else 0, planes or (source.randrange(2, 9) if axes > 2 else 0)


def read_all(module):
    """Every shape, format and sampler with another."""
    number = 0
    for shape, (_, _, integers, _, _, array_flags) in SHAPES.items():
        for format in FORMATS:
            for channels in (1, 2, 4):
                number += 1
                source = random.Random(number)
                is_number = format[0] == "f" or (format[1:] != "32" and number % 3 > 0)
                flags = (0 if is_number else AS_INTEGERS) | (NORMALIZED if number % 2 or "cube" in shape else 0)
                filter = LINEAR if is_number and number % 4 < 2 else POINT
                modes = [source.choice([WRAP, CLAMP, MIRROR, BORDER]) for _ in range(3)]
                if SHAPES[shape][3] == 1:
                    # A line is a plane for libcuda, one texel high and read at 0, between it and what is outside.
                    modes[1] = CLAMP
                border = [source.choice([0, 0x3F000000, 0x3F800000]) for _ in range(4)]
                image = Image("array", format, channels, size_of(shape, source), array_flags)
                texture = image.texture(modes, filter, flags, border)
                kernels = [f"tex_{shape}", f"level_{shape}"] + ([f"load_{shape}"] if integers else [])
                if shape == "2d":
                    kernels += [f"gather_{channel}" for channel in "rgba"[:channels]] + ["offset"]
                for kernel in kernels:
                    lanes = given(source, image, flags & NORMALIZED, "cube" in shape)
                    words = launch(module, kernel, texture, lanes)
                    what = f"{kernel} of {format}x{channels} {image.size} {modes} {filter} {flags}"
                    tell(what, words)
                    if shape in ("1d", "2d", "3d") and kernel == f"tex_{shape}" and filter == POINT:
                        nearest(what, image, modes, flags, border, lanes, words)
                for axis in ("width", "height", "depth") if channels == 4 and format == "u8" else ():
                    tell(f"{axis} of {shape} {image.size}", launch(module, f"size_{axis}", texture, lanes[:1]))
                call("cuTexObjectDestroy", texture)
                image.destroy()


def nearest(what, image, modes, flags, border, lanes, words):
    """Holds reads of the nearest texel against what they are defined as."""
    axes = sum(1 for axis in image.size if axis)
    for lane, found in zip(lanes, words):
        floats = struct.unpack_from("3f", lane)
        at, is_outside = [0, 0, 0], False
        if not all(math.isfinite(value) and abs(value) < 1e6 for value in floats):
            continue
        for axis in range(axes):
            count, mode = image.counts[axis], modes[axis]
            place = math.floor(floats[axis] * count if flags & NORMALIZED else floats[axis])
            if mode == BORDER:
                is_outside |= not 0 <= place < count
            elif mode == WRAP and flags & NORMALIZED:
                place %= count
            elif mode == MIRROR and flags & NORMALIZED:
                place = min(place % (2 * count), 2 * count - 1 - place % (2 * count))
            at[axis] = min(max(place, 0), count - 1)
        expected = list(border[: image.channels])
        if not is_outside:
            channels = image.at(*at)
            bits = FORMATS[image.format][1]
            if image.letter in "ef":
                expected = [struct.unpack("I", struct.pack("f", value))[0] for value in channels]
            elif flags & AS_INTEGERS or bits == 32:
                expected = [value & 0xFFFFFFFF for value in channels]
            else:
                most = (1 << (bits - (image.letter in "bh"))) - 1
                values = [max(value / most, -1.0) for value in channels]
                expected = [struct.unpack("I", struct.pack("f", value))[0] for value in values]
        if list(found[: image.channels]) != expected:
            sys.exit(f"{what}: at {floats}, texel {at}: {found} is not {expected}")


def exact(source, is_cube):
    """Words of lanes, whose floats have no sums that are rounded; the fourth is a level, and the fifth integer one."""
    lanes = []
    for _ in range(LANES):
        floats = [source.randrange(-32, 33) / 16 for _ in range(3)]
        if is_cube:
            floats[source.randrange(3)] = source.choice([4.0, -4.0])
        floats.append(source.randrange(-24, 120) / 16)
        integers = [source.randrange(-4, 10) for _ in range(4)]
        lanes.append(struct.pack("4f4iiI", *floats, *integers, source.randrange(-2, 8), 0))
    return lanes


def mipmaps(module):
    """Every shape with levels, as far as there are any; and each level by itself."""
    number = 0
    for shape, (_, _, integers, _, _, array_flags) in SHAPES.items():
        for format, channels in (("u8", 4), ("f32", 1), ("f16", 2), ("u32", 4), ("s16", 1)):
            number += 1
            source = random.Random(number)
            size = size_of(shape, source)
            axes = [axis for axis in (size[:2] if SHAPES[shape][4] else size) if axis]
            mipmap = Mipmap(format, channels, size, array_flags | SURFACE, max(axes).bit_length())
            flags = NORMALIZED | (AS_INTEGERS if format == "u32" else 0)
            for filter in (POINT, LINEAR) if format != "u32" else (POINT,):
                modes = [source.choice([WRAP, CLAMP, MIRROR, BORDER]) for _ in range(3)]
                if SHAPES[shape][3] == 1:
                    modes[1] = CLAMP
                last = len(mipmap.levels) - 1
                choices = [(0.0, 0.0, float(last)), (0.625, 0.0, 99.0), (-1.25, 1.5, 2.75), (0.0, 2.0, 1.0)]
                levels = (source.choice((POINT, LINEAR)), *choices[number % 4])
                texture = mipmap.texture(modes, filter, flags, (0, 0, 0x3F800000, 0), levels)
                kernels = [f"tex_{shape}", f"lod_{shape}"]
                kernels += [f"exact_{shape}"] if integers else []
                kernels += [f"grad_{shape}"] if shape in GRADIENTS else []
                kernels += ["half_lod", "gather_r", "offset"] if shape == "2d" else []
                kernels += [f"level_{axis}" for axis in ("width", "height", "depth")]
                for kernel in kernels:
                    words = launch(module, kernel, texture, exact(source, "cube" in shape))
                    tell(f"{kernel} of levels of {format}x{channels} {size} {modes} {filter} {levels}", words)
                call("cuTexObjectDestroy", texture)
            for level in mipmap.levels:
                # The header that libcuda makes of one level does not say how far planes with all levels are apart.
                if not SHAPES[shape][4]:
                    texture = level.texture([CLAMP] * 3, POINT, flags)
                    words = launch(module, f"tex_{shape}", texture, given(source, level, True, False))
                    tell(f"tex_{shape} of a level {level.size}", words)
                    call("cuTexObjectDestroy", texture)
                if shape in ("1d", "2d", "3d", "a2d"):
                    surface = level.surface()
                    words = launch(module, f"sust_{shape}_zero", surface, given(source, level, False, False, (4, True)))
                    left = level.copy(bytes(len(level.data)), False)
                    tell(f"sust_{shape} leaves in a level", [left])
                    call("cuSurfObjectDestroy", surface)
            for level in mipmap.levels:
                tell("a level at the end", [level.copy(bytes(len(level.data)), False)])
            mipmap.destroy()


def read_halves(module):
    """Results of 16 bits."""
    for number, (format, channels) in enumerate((("f32", 4), ("f16", 4), ("u8", 4), ("s16", 2), ("f32", 1))):
        source = random.Random(f"{format} {channels} halves")
        image = Image("array", format, channels, size_of("2d", source))
        texture = image.texture([source.choice([WRAP, CLAMP, MIRROR]) for _ in range(3)], number % 2, NORMALIZED)
        for kernel in ("half", "half_load", "half_some", "pairs"):
            words = launch(module, kernel, texture, given(source, image, True, False))
            tell(f"{kernel} of {format}x{channels} {image.size}", words)
        call("cuTexObjectDestroy", texture)
        image.destroy()


def read_memory(module):
    """Lines of memory, and rows with a pitch."""
    for number, format in enumerate(FORMATS):
        for channels in (1, 2, 4):
            source = random.Random(f"{format} {channels}")
            line = Image("line", format, channels, (source.randrange(8, 100), 0, 0))
            texture = line.texture([CLAMP] * 3, POINT, AS_INTEGERS if channels == 2 else 0)
            tell(f"a line of {format}x{channels}", launch(module, "load_1d", texture, given(source, line, False, False)))
            tell("its size", launch(module, "size_width", texture, given(source, line, False, False)[:1]))
            call("cuTexObjectDestroy", texture)
            line.destroy()
            rows = Image("rows", format, channels, (source.randrange(8, 100), source.randrange(2, 30), 0))
            is_number = format[0] == "f" or format[1:] != "32"
            modes = [source.choice([WRAP, CLAMP, MIRROR, BORDER]) for _ in range(3)]
            flags = (0 if is_number else AS_INTEGERS) | (NORMALIZED if number % 2 else 0)
            texture = rows.texture(modes, LINEAR if is_number else POINT, flags)
            for kernel in ("tex_2d", "load_2d", "gather_r", "size_width", "size_height"):
                words = launch(module, kernel, texture, given(source, rows, flags & NORMALIZED, False))
                tell(f"{kernel} of rows of {format}x{channels} {rows.size} {modes} {flags}", words)
            call("cuTexObjectDestroy", texture)
            rows.destroy()


def surfaces(module):
    """What is read from surfaces, and the array after what is written."""
    for shape, (_, _, integers, _, _, flags) in SHAPES.items():
        if integers is None:
            continue
        source = random.Random(shape)
        for outside in ("trap", "clamp", "zero"):
            for kind in ("suld", "sust"):
                surface(module, source, shape, f"{kind}_{shape}_{outside}", (4, outside != "trap"), flags)
    for width, name in ((1, "b8"), (2, "b16"), (8, "b64"), (8, "v2_b32"), (16, "v4_b32")):
        for kind in ("suld", "sust"):
            surface(module, source, "2d", f"{kind}_{name}", (width, False), 0)
    for operation in ("add", "min", "max"):
        surface(module, source, "2d", f"sured_{operation}", (4, False), 0)


def surface(module, source, shape, kernel, access, flags):
    format, channels = ("u8", 1) if access[0] == 1 else ("u32", 4)
    image = Image("array", format, channels, size_of(shape, source), flags | SURFACE)
    handle = image.surface()
    tell(f"{kernel} {image.size}", launch(module, kernel, handle, given(source, image, False, False, access)))
    left = image.copy(bytes(len(image.data)), False)
    if kernel.startswith("suld") and left != image.data:
        sys.exit(f"{kernel}: the array has changed")
    tell(f"{kernel} leaves", [struct.unpack_from(f"{len(left) // 4}I", left)])
    call("cuSurfObjectDestroy", handle)
    image.destroy()


def mistake(module, name):
    """Reads or writes what is not there, or what is not simulated."""
    kernel, image, modes = "tex_2d", Image("array", "u8", 4, (64, 64, 0), SURFACE), [CLAMP] * 3
    texture, lanes = image.texture(modes, POINT, NORMALIZED), given(random.Random(1), image, True, False)
    if name == "empty":
        texture = Pointer(texture.value + 5)
    elif name == "freed":
        large = Image("array", "u32", 4, (4096, 1024, 0), data=bytes(64 << 20))
        texture = large.texture(modes, POINT, AS_INTEGERS)
        large.destroy()
    elif name == "srgb":
        texture = image.texture(modes, POINT, NORMALIZED | 0x10)
    elif name == "outside":
        kernel, texture = "suld_2d_trap", image.surface()
        lanes = given(random.Random(1), image, False, False, (4, False))
        lanes[3] = struct.pack("4f4i2I", 0, 0, 0, 0, 256, 7, 0, 0, 0, 0)
    launch(module, kernel, texture, lanes)
    sys.exit(f"{name} went well")


call("cuInit", 0)
context = made(Handle, "cuCtxCreate_v2", YIELDS, 0)
kernels = module()
if len(sys.argv) > 1:
    mistake(kernels, sys.argv[1])
read_all(kernels)
read_memory(kernels)
read_halves(kernels)
mipmaps(kernels)
surfaces(kernels)
call("cuCtxDestroy_v2", context)
