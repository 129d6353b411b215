// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package load

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// Progress shows how far a load is: a bar on a terminal, a line per kind
// elsewhere. It is safe for concurrent use; nil shows nothing.
type Progress struct {
	out      io.Writer
	terminal bool

	mu          sync.Mutex
	name        string
	done, total int
	started     time.Time
	shown       time.Time
}

// NewProgress shows progress on out.
func NewProgress(out io.Writer) *Progress {
	file, ok := out.(*os.File)
	return &Progress{out: out, terminal: ok && term.IsTerminal(int(file.Fd()))}
}

func (p *Progress) begin(name string, total int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.name, p.done, p.total, p.started = name, 0, total, time.Now()
}

func (p *Progress) add(n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done += n
	if p.terminal && time.Since(p.shown) > 100*time.Millisecond {
		p.shown = time.Now()
		p.barLocked()
	}
}

func (p *Progress) barLocked() {
	const width = 40
	filled := width * p.done / max(p.total, 1)
	fmt.Fprintf(p.out, "\r%-16s [%s%s] %d/%d ", p.name, strings.Repeat("=", filled), strings.Repeat(" ", width-filled), p.done, p.total)
}

func (p *Progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.terminal {
		p.barLocked()
		fmt.Fprintln(p.out)
		return
	}
	fmt.Fprintf(p.out, "%s: %d in %.1f s\n", p.name, p.done, time.Since(p.started).Seconds())
}
