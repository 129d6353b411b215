// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

// Package configdrift reports a configuration that has changed since the start.
package configdrift

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

// interval is the time between two comparisons with the configuration of the start.
const interval = time.Minute

// detector compares the mounted ConfigMap or the config file with what the process was
// started with: a change has no effect until a restart.
type detector struct {
	paths  []string
	log    *slog.Logger
	health health.Reporter

	began   map[string]string // content by path, at the start
	changed []string          // as reported last
}

// NewJob returns the job that reports changes, none without a directory or file.
func NewJob(v *config.Values, log *slog.Logger, h health.Reporter) job.Job {
	d := &detector{log: log, health: h.Child("config")}
	for _, option := range []string{config.DirOption, config.FileOption} {
		if e, _ := v.Lookup(option); e.Value != "" {
			d.paths = append(d.paths, e.Value)
		}
	}
	if len(d.paths) == 0 {
		return job.Job{}
	}
	return job.Timer(d.compare, interval)
}

func (d *detector) compare(context.Context) error {
	now := map[string]string{}
	for _, path := range d.paths {
		readAll(path, now)
	}
	if d.began == nil {
		d.began = now
	}
	d.report(differing(d.began, now))
	return nil
}

func (d *detector) report(changed []string) {
	if slices.Equal(changed, d.changed) {
		return
	}
	d.changed = changed
	if len(changed) == 0 {
		d.log.Info("configuration is again that of the start")
		d.health.OK("")
		return
	}
	keys := strings.Join(changed, ", ")
	d.log.Warn("configuration has changed since the start and is not in effect", "keys", keys)
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
