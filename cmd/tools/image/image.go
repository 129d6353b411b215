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
	programs, tools, licenses string // folders
	version, revision         string
	created                   time.Time
}

// clouds are those whose programs charts name, whether they are among the programs or not.
var clouds = []string{"alibabacloud", "aws", "azure"}

// platform is what an image has for one platform alone.
type platform struct {
	architecture string
	programs     tree
	names        []string // of the programs, in the image, in order
	tools        []string
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
			Entrypoint: []string{"/usr/bin/" + p.names[0]},
			WorkingDir: "/",
			// Charts name programs without a path. The gops agent writes a file, by default into the home directory; here
			// where any user may write, in every container.
			Env:    []string{"PATH=/usr/bin:/bin", "GOPS_CONFIG_DIR=/dev/shm/gops"},
			Labels: s.labels(),
		},
	})
	if err != nil {
		return nil, err
	}
	entry := func(layer v1.Layer, what string) mutate.Addendum {
		return mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: s.created}, CreatedBy: what}}
	}
	return mutate.Append(image, entry(ground, "certificates, licences and folders"), entry(top, strings.Join(slices.Concat(p.names, p.tools), " ")))
}

// platforms are those that there are programs for: the same ones for each.
func (s source) platforms() ([]platform, error) {
	folders, err := os.ReadDir(s.programs)
	if err != nil {
		return nil, fmt.Errorf("look for programs: %w", err)
	}
	var all []platform
	for _, f := range folders {
		p, err := readPlatform(f.Name(), s.programs, s.tools)
		if err != nil {
			return nil, err
		}
		all = append(all, p)
		if !slices.Equal(p.names, all[0].names) || !slices.Equal(p.tools, all[0].tools) {
			return nil, fmt.Errorf("%s has %q and %q, and another platform %q and %q; build all programs for all platforms",
				f.Name(), p.names, p.tools, all[0].names, all[0].tools)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no platforms; build programs into folders such as linux-amd64", s.programs)
	}
	return all, nil
}

// readPlatform gives the programs and tools of a platform the names that they have in the image.
func readPlatform(name, programs, tools string) (p platform, err error) {
	system, architecture, _ := strings.Cut(name, "-")
	if system != "linux" || machines[architecture] == 0 {
		return p, fmt.Errorf("%s is no platform of ours, which are named like linux-amd64", filepath.Join(programs, name))
	}
	p = platform{architecture: architecture, programs: tree{}}
	if p.names, err = p.addPrograms(filepath.Join(programs, name), "usr/bin/"+prefix); err != nil {
		return p, err
	}
	if len(p.names) == 0 {
		return p, fmt.Errorf("%s has no programs", filepath.Join(programs, name))
	}
	if p.tools, err = p.addPrograms(filepath.Join(tools, name), "bin/"); err != nil {
		return p, err
	}
	for _, cloud := range clouds {
		p.link("operator-"+cloud, prefix)
	}
	// So that what documents say works in a container, too.
	p.link(strings.TrimPrefix(p.names[0], prefix), "")
	return p, nil
}

// addPrograms adds the programs in a folder, and returns what they are called.
func (p platform) addPrograms(folder, to string) (names []string, err error) {
	files, err := os.ReadDir(folder)
	if err != nil {
		return nil, fmt.Errorf("look for programs: %w", err)
	}
	for _, f := range files {
		from := filepath.Join(folder, f.Name())
		if err := checkStatic(from, p.architecture); err != nil {
			return nil, err
		}
		p.programs.addFile(to+f.Name(), from, 0o555)
		names = append(names, path.Base(to+f.Name()))
	}
	return names, nil
}

// link gives the first program another name, unless another program has it.
func (p platform) link(name, prefix string) {
	if at := "usr/bin/" + prefix + name; !slices.Contains(p.names, prefix+name) {
		p.programs.add(at, entry{link: p.names[0]})
	}
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
