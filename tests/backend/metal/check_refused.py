"""Whether the type check of metal_device.mm notices mistakes: each is put in alone and has to be refused.

    check_refused.py SOURCE.mm -- COMPILE_COMMAND...
"""
import subprocess
import sys

MISTAKES = {
    "a misspelt selector": ("[encoder_ endEncoding]", "[encoder_ endEncodings]"),
    "a wrong argument": ("setBytes:bytes length:size", "setBytes:bytes length:@\"size\""),
    "a missing argument": (" options:MTLResourceStorageModeShared]", "]"),
    "an object of another class": ("id<MTLFunction> function = nil;", "id<MTLBuffer> function = nil;"),
    "a property that is none": ("device.maxBufferLength", "device.maxBufferLengths"),
}


def main():
    source, command = sys.argv[1], sys.argv[sys.argv.index("--") + 1:]
    with open(source, encoding="utf-8") as file:
        text = file.read()
    missed = []
    for name, (right, wrong) in MISTAKES.items():
        if right not in text:
            missed.append(f"{name}: '{right}' is not in the source any more")
            continue
        run = subprocess.run([*command, "-"], input=text.replace(right, wrong, 1), capture_output=True, text=True,
                             check=False)
        if run.returncode == 0 or " error: " not in run.stderr:
            missed.append(f"{name}: not refused")
    print("\n".join(missed))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
