// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package health

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/skep-operator/skep/runtime/config"
	"github.com/skep-operator/skep/runtime/health"
	"github.com/skep-operator/skep/runtime/job"
)

// driftPeriod is how often the configuration is compared with that of the start.
const driftPeriod = time.Minute

// drift tells when the mounted ConfigMap or the config file is no longer what
// the process was started with: a change has no effect until a restart.
type drift struct {
	paths  []string
	log    *slog.Logger
	health health.Reporter

	began   map[string]string // content by path, of the first look
	changed []string          // as told last
}

func newDrift(v *config.Values, log *slog.Logger, h health.Reporter) job.Job {
	d := &drift{log: log, health: h.Part("config")}
	for _, option := range []string{config.DirOption, config.FileOption} {
		if e, _ := v.Lookup(option); e.Value != "" {
			d.paths = append(d.paths, e.Value)
		}
	}
	if len(d.paths) == 0 {
		return job.Job{}
	}
	return job.Timer(d.look, driftPeriod)
}

func (d *drift) look(context.Context) error {
	now := map[string]string{}
	for _, path := range d.paths {
		readAll(path, now)
	}
	if d.began == nil {
		d.began = now
	}
	d.tell(differing(d.began, now))
	return nil
}

func (d *drift) tell(changed []string) {
	if slices.Equal(changed, d.changed) {
		return
	}
	d.changed = changed
	if len(changed) == 0 {
		d.log.Info("the configuration is again what it was at the start")
		d.health.OK("")
		return
	}
	keys := strings.Join(changed, ", ")
	d.log.Warn("the configuration has changed; restart the operator to have it take effect", "keys", keys)
	d.health.Degraded("changed since the start and not in effect: "+keys, nil)
}

// readAll reads a file, or the files of a folder, by path. What cannot be read,
// folders among it, is left out.
func readAll(path string, into map[string]string) {
	files := []string{path}
	inside, _ := os.ReadDir(path) // nothing in a file
	for _, f := range inside {
		files = append(files, filepath.Join(path, f.Name()))
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err == nil {
			into[file] = strings.TrimSpace(string(text))
		}
	}
}

// differing are the names of files that are not in both maps with the same
// content.
func differing(a, b map[string]string) []string {
	names := map[string]bool{}
	for _, side := range []map[string]string{a, b} {
		for path := range side {
			x, inA := a[path]
			y, inB := b[path]
			if inA != inB || x != y {
				names[filepath.Base(path)] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}
