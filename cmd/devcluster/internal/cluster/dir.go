// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/skep-operator/skep/resources/clustertest/control"
)

// directory is where one devcluster keeps everything. It is locked as long as
// the devcluster runs.
type directory struct {
	path string
	lock *os.File
}

func openDirectory(path string) (*directory, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return nil, fmt.Errorf("open the directory %s: %w", path, err)
	}
	d := &directory{path: path}
	for _, dir := range []string{path, d.file("logs"), d.file("kubeconfigs")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("make the directory %s: %w", dir, err)
		}
	}
	if d.lock, err = os.OpenFile(d.file("lock"), os.O_CREATE|os.O_RDWR, 0o600); err != nil {
		return nil, fmt.Errorf("lock the directory %s: %w", path, err)
	}
	if err := syscall.Flock(int(d.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		d.lock.Close()
		return nil, fmt.Errorf("a devcluster runs in %s already: stop it with `devcluster down`, or take another directory (%w)", path, err)
	}
	if err := d.removeInfo(); err != nil { // left by one that was killed
		d.lock.Close()
		return nil, err
	}
	return d, nil
}

func (d *directory) removeInfo() error {
	if err := os.Remove(d.file(control.InfoFile)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("take %s back: %w", control.InfoFile, err)
	}
	return nil
}

func (d *directory) file(parts ...string) string {
	return filepath.Join(append([]string{d.path}, parts...)...)
}

func (d *directory) openLog(name string) (*os.File, error) {
	log, err := os.OpenFile(d.file("logs", name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log %s: %w", name, err)
	}
	return log, nil
}

// writeInfo publishes that the devcluster is ready: the file appears whole.
func (d *directory) writeInfo(info control.Info) error {
	files := map[string]any{control.InfoFile: info, "etcd.json": info.Etcd}
	for name, content := range files {
		data, err := json.MarshalIndent(content, "", "  ")
		if err != nil {
			return fmt.Errorf("encode %s: %w", name, err)
		}
		temporary := d.file(name + ".new")
		if err := os.WriteFile(temporary, data, 0o600); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
		if err := os.Rename(temporary, d.file(name)); err != nil {
			return fmt.Errorf("write %s: %w", name, err)
		}
	}
	return nil
}

// close takes the Info back and unlocks the directory.
func (d *directory) close() error {
	return errors.Join(d.removeInfo(), d.lock.Close())
}
