// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// entry is a file, a folder or a link of an image. All belong to root, and no other user may write to them unless the mode
// says so.
type entry struct {
	content func() ([]byte, error) // of a file
	link    string                 // of a link
	mode    int64                  // of a file or folder
}

// tree is a part of an image, by path without the slash at the beginning.
type tree map[string]entry

func (t tree) add(at string, e entry) {
	for dir := path.Dir(at); dir != "."; dir = path.Dir(dir) {
		if _, ok := t[dir]; !ok {
			t[dir] = entry{mode: 0o755}
		}
	}
	t[at] = e
}

func (t tree) addFile(at, from string, mode int64) {
	t.add(at, entry{mode: mode, content: func() ([]byte, error) { return os.ReadFile(from) }})
}

// base is what every platform has.
func base(licenses string) (tree, error) {
	t := tree{}
	t.add("etc/ssl/certs/ca-certificates.crt", entry{mode: 0o444, content: certificates})
	t.add("var/run/cilium", entry{mode: 0o1777}) // any user, and its own files alone
	err := filepath.WalkDir(licenses, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, err := filepath.Rel(licenses, file)
		t.addFile(path.Join("licenses", filepath.ToSlash(rel)), file, 0o444)
		return err
	})
	return t, err
}

// certificates are the authorities in PEM. One that Mozilla trusts under conditions only is left out: the format has
// none, so it would be trusted without.
func certificates() ([]byte, error) {
	var b bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint == nil {
			if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
				return nil, err
			}
		}
	}
	return b.Bytes(), nil
}

// layer is the tree as a layer, in the order of paths, with one time for all.
func (t tree) layer(age time.Time) (v1.Layer, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, at := range slices.Sorted(maps.Keys(t)) {
		if err := t[at].write(w, at, age); err != nil {
			return nil, fmt.Errorf("put %s into a layer: %w", at, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

func (e entry) write(w *tar.Writer, at string, age time.Time) error {
	header := &tar.Header{Name: at, Mode: e.mode, ModTime: age, Format: tar.FormatPAX}
	var content []byte
	switch {
	case e.link != "":
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, e.link, 0o777
	case e.content == nil:
		header.Typeflag, header.Name = tar.TypeDir, at+"/"
	default:
		var err error
		if content, err = e.content(); err != nil {
			return err
		}
		header.Typeflag, header.Size = tar.TypeReg, int64(len(content))
	}
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	_, err := w.Write(content)
	return err
}
