// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
)

// build compiles the program of the tests for a platform.
func build(t *testing.T, to, architecture string, more ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", to)
	cmd.Args = append(cmd.Args, more...)
	cmd.Args = append(cmd.Args, "./testdata/program")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+architecture)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}

// sourceOf is what a small image is made of.
func sourceOf(t *testing.T) source {
	t.Helper()
	dir := t.TempDir()
	s := source{
		programs: filepath.Join(dir, "programs"), tools: filepath.Join(dir, "tools"), licenses: filepath.Join(dir, "licenses"),
		version: "v1.2.3", revision: "abc", created: time.Unix(1_700_000_000, 0).UTC(),
	}
	for architecture := range machines {
		folder := filepath.Join(s.programs, "linux-"+architecture)
		build(t, filepath.Join(folder, "operator"), architecture)
		build(t, filepath.Join(folder, "operator-generic"), architecture)
		build(t, filepath.Join(s.tools, "linux-"+architecture, "gops"), architecture)
	}
	file := filepath.Join(s.licenses, "example.org", "LICENSE")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte("permitted"), 0o600)); err != nil {
		t.Fatal(err)
	}
	return s
}

// images are those of a layout by architecture.
func images(t *testing.T, path string) map[string]v1.Image {
	t.Helper()
	outer, err := layout.ImageIndexFromPath(path)
	if err != nil {
		t.Fatal(err)
	}
	entries, err := outer.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	// More than one, and neither crane nor skopeo would know which is meant.
	if len(entries.Manifests) != 1 {
		t.Fatalf("the layout has %d entries, want 1", len(entries.Manifests))
	}
	index, err := outer.ImageIndex(entries.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]v1.Image{}
	for _, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		all[d.Platform.Architecture] = image
	}
	return all
}

// files calls visit for what is in an image.
func files(t *testing.T, image v1.Image, visit func(*tar.Header, io.Reader)) {
	t.Helper()
	content := mutate.Extract(image)
	defer content.Close()
	for r := tar.NewReader(content); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		visit(header, r)
	}
}

// unpack puts the files of an image into a folder.
func unpack(t *testing.T, image v1.Image, root string) {
	t.Helper()
	files(t, image, func(h *tar.Header, content io.Reader) {
		to := filepath.Join(root, h.Name)
		var err error
		switch h.Typeflag {
		case tar.TypeDir:
			err = errors.Join(os.MkdirAll(to, 0o755), os.Chmod(to, h.FileInfo().Mode()))
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, to)
		default:
			var file *os.File
			if file, err = os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, os.FileMode(h.Mode)); err == nil {
				_, err = io.Copy(file, content)
				err = errors.Join(err, file.Close())
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Lchown(to, h.Uid, h.Gid); err != nil {
			t.Fatal(err)
		}
	})
}

// describe is a file in one line.
func describe(h *tar.Header) string {
	line := fmt.Sprintf("%s %d:%d %s", h.FileInfo().Mode().String()[1:], h.Uid, h.Gid, strings.TrimSuffix(h.Name, "/"))
	if h.Linkname != "" {
		line += " -> " + h.Linkname
	}
	return line
}
