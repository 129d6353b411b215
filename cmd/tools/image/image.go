// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package main

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// prefix is put before the names of programs: so the original's are called, and so charts call them.
const prefix = "cilium-"

// source is what an image is made of.
type source struct {
	programs, licenses string // folders
	version, revision  string
	created            time.Time
}

// platform is what an image has for one platform alone.
type platform struct {
	architecture string
	programs     tree
	names        []string // of the programs, in the image, in order
}

// index is the image for all platforms that there are programs for.
func (s source) index() (v1.ImageIndex, error) {
	platforms, err := s.platforms()
	if err != nil {
		return nil, err
	}
	common, err := base(s.licenses)
	if err != nil {
		return nil, fmt.Errorf("read the licences: %w", err)
	}
	ground, err := common.layer(s.created)
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := s.image(p, ground)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.architecture}},
		})
	}
	return mutate.Annotations(index, s.labels()).(v1.ImageIndex), nil
}

// image is that of one platform.
func (s source) image(p platform, ground v1.Layer) (v1.Image, error) {
	top, err := p.programs.layer(s.created)
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.ConfigFile(image, &v1.ConfigFile{
		OS: "linux", Architecture: p.architecture, Created: v1.Time{Time: s.created}, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User:       fmt.Sprintf("%d:%d", user, user),
			Entrypoint: []string{"/usr/bin/" + p.names[0]},
			WorkingDir: "/",
			// Charts name programs without a path. The gops agent writes a file, by default where nothing can be written.
			Env:    []string{"PATH=/usr/bin", "GOPS_CONFIG_DIR=/var/run/cilium/gops"},
			Labels: s.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	entry := func(layer v1.Layer, what string) mutate.Addendum {
		return mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.created}, CreatedBy: what}}
	}
	return mutate.Append(image, entry(ground, "certificates, licences and folders"), entry(top, strings.Join(p.names, " ")))
}

// platforms are those that there are programs for: the same ones for each.
func (s source) platforms() ([]platform, error) {
	folders, err := os.ReadDir(s.programs)
	if err != nil {
		return nil, fmt.Errorf("look for programs: %w", err)
	}
	var all []platform
	for _, f := range folders {
		p, err := readPlatform(filepath.Join(s.programs, f.Name()))
		if err != nil {
			return nil, err
		}
		if all = append(all, p); !slices.Equal(p.names, all[0].names) {
			return nil, fmt.Errorf("%s has %q, and another platform %q; build all programs for all platforms", f.Name(), p.names, all[0].names)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no platforms; build programs into folders such as linux-amd64", s.programs)
	}
	return all, nil
}

// readPlatform gives the programs in a folder the names that they have in the image.
func readPlatform(folder string) (p platform, err error) {
	system, architecture, _ := strings.Cut(filepath.Base(folder), "-")
	if system != "linux" || machines[architecture] == 0 {
		return p, fmt.Errorf("%s is no platform of ours, which are named like linux-amd64", folder)
	}
	files, err := os.ReadDir(folder)
	if err != nil {
		return p, fmt.Errorf("look for programs: %w", err)
	}
	p = platform{architecture: architecture, programs: tree{}}
	for _, f := range files {
		from := filepath.Join(folder, f.Name())
		if err := checkStatic(from, architecture); err != nil {
			return p, err
		}
		p.names = append(p.names, prefix+f.Name())
		p.programs.addFile(path.Join("usr/bin", prefix+f.Name()), from, 0o555)
	}
	if len(files) == 0 {
		return p, fmt.Errorf("%s has no programs", folder)
	}
	// So that what documents say works in a container, too.
	p.programs.add("usr/bin/"+files[0].Name(), entry{link: p.names[0]})
	return p, nil
}

// labels say what is in the image, by the names that OCI has for it.
func (s source) labels() map[string]string {
	return map[string]string{
		"org.opencontainers.image.title":         "Skep",
		"org.opencontainers.image.description":   "An operator for Cilium clusters",
		"org.opencontainers.image.source":        "https://github.com/skep-operator/skep",
		"org.opencontainers.image.documentation": "https://github.com/skep-operator/skep/blob/main/docs/deploying.md",
		"org.opencontainers.image.licenses":      "Apache-2.0",
		"org.opencontainers.image.version":       s.version,
		"org.opencontainers.image.revision":      s.revision,
		"org.opencontainers.image.created":       s.created.Format(time.RFC3339),
	}
}

// writeLayout writes a layout of one image, named by its version. It is there completely, or as it was.
func writeLayout(index v1.ImageIndex, version, to string) error {
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	unfinished, err := os.MkdirTemp(filepath.Dir(to), filepath.Base(to)+".*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(unfinished)
	if err := os.Chmod(unfinished, 0o755); err != nil { // others push it
		return err
	}
	l, err := layout.Write(unfinished, empty.Index)
	if err != nil {
		return err
	}
	if err := l.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": version})); err != nil {
		return err
	}
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return os.Rename(unfinished, to)
}
