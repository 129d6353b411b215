// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package explain

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/skep-operator/skep/runtime/cell"
	"github.com/skep-operator/skep/runtime/command"
	"github.com/skep-operator/skep/runtime/printable"
)

// Cell remembers writes and decisions, and tells them to the commands explain and
// writes.
var Cell = cell.Module("explain", "Remembers why objects were written, or not",
	cell.Provide(NewHistory, newPages),
	cell.Annotate(explainCommand),
	cell.Annotate(writesCommand),
)

// pages are what the running operator tells.
type pages struct {
	cell.Out

	Explain command.Endpoint `group:"local api"`
	Writes  command.Endpoint `group:"local api"`
}

func newPages(b *History) pages {
	return pages{
		Explain: command.Endpoint{Path: "/explain", Serve: func(w http.ResponseWriter, r *http.Request) {
			q := r.URL.Query()
			answer(w, b.For(q.Get("kind"), q.Get("namespace"), q.Get("name")))
		}},
		Writes: command.Endpoint{Path: "/writes", Serve: b.serveWrites},
	}
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(printable.Writer(w)).Encode(value) // who asked has gone
}

// serveWrites writes a line of JSON per write; with follow it goes on.
func (b *History) serveWrites(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, flush := json.NewEncoder(printable.Writer(w)), http.NewResponseController(w)
	seq, _ := strconv.ParseUint(r.URL.Query().Get("after"), 10, 64)
	if r.URL.Query().Get("follow") == "" {
		for _, write := range b.Writes(seq) {
			_ = lines.Encode(write)
		}
		return
	}
	_ = flush.Flush() // there may be nothing to tell for long
	for write := range b.Follow(r.Context(), seq) {
		if lines.Encode(write) != nil || flush.Flush() != nil {
			return
		}
	}
}
