// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
)

// Images are the images of a pod's containers by their names, in one word that all
// pods of a template share. It decodes spec.containers.
type Images struct{ packed String }

// ContainerImage is the image of a container.
type ContainerImage struct {
	Name  string `json:"name"`
	Image string `json:"image"`
}

// MakeImages packs images.
func MakeImages(images ...ContainerImage) Images {
	var b []byte
	for _, c := range images {
		b = appendPart(appendPart(b, c.Name), c.Image)
	}
	return Images{MakeString(string(b))}
}

// Of returns the image of a container, "" if there is no such container.
func (i Images) Of(container string) string {
	for rest := i.packed.String(); rest != ""; {
		var name, image string
		name, rest = nextPart(rest)
		image, rest = nextPart(rest)
		if name == container {
			return image
		}
	}
	return ""
}

// MarshalJSON implements json.Marshaler.
func (i Images) MarshalJSON() ([]byte, error) {
	all := []ContainerImage{}
	for rest := i.packed.String(); rest != ""; {
		var c ContainerImage
		c.Name, rest = nextPart(rest)
		c.Image, rest = nextPart(rest)
		all = append(all, c)
	}
	return json.Marshal(all)
}

// UnmarshalJSON implements json.Unmarshaler.
func (i *Images) UnmarshalJSON(data []byte) error {
	var all []ContainerImage
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	*i = MakeImages(all...)
	return nil
}

// AcceptsField implements FieldDecoder.
func (*Images) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[[]corev1.Container]() {
		return fmt.Errorf("slim.Images keeps containers, not %s", full)
	}
	return nil
}

var (
	containerName  = FieldNumber[corev1.Container]("name")
	containerImage = FieldNumber[corev1.Container]("image")
)

// DecodeField implements FieldDecoder.
func (i *Images) DecodeField(f Field) error {
	packed := f.scratch()
	for container := range f.Values() {
		var name, image []byte
		for rest := container; len(rest) > 0; {
			part, more, err := nextField(rest)
			if err != nil {
				return err
			}
			rest = more
			switch part.num {
			case containerName:
				name, err = part.bytes()
			case containerImage:
				image, err = part.bytes()
			}
			if err != nil {
				return err
			}
		}
		packed = appendPart(appendPart(packed, name), image)
	}
	i.packed = f.internScratch(packed)
	return nil
}
