// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"debug/elf"
	"fmt"
	"strings"
)

// machines are the architectures that images are made for, by Go's names.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// checkStatic makes sure that a program runs where there is nothing but the kernel: an image without a loader and libc
// says "no such file or directory" of any other, and only once it runs.
func checkStatic(path, architecture string) error {
	file, err := elf.Open(path)
	if err != nil {
		return fmt.Errorf("%s is no program for Linux: %w", path, err)
	}
	defer file.Close()
	if want, ok := machines[architecture]; !ok || file.Machine != want {
		return fmt.Errorf("%s is for %s, not for %s; build it with GOARCH=%s", path, file.Machine, architecture, architecture)
	}
	libraries, err := file.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("read which libraries %s needs: %w", path, err)
	}
	for _, p := range file.Progs {
		if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC || len(libraries) > 0 {
			return fmt.Errorf("%s is not static: it has a segment %s and needs the libraries [%s]; build it with CGO_ENABLED=0",
				path, p.Type, strings.Join(libraries, " "))
		}
	}
	return nil
}
