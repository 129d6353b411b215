// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package servicesync

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/skep-operator/skep/resources/stream/slim"
)

// flagAnnotations are the annotations that are true or false.
var flagAnnotations = []string{globalAnnotation, globalAlias, sharedAnnotation, sharedAlias}

// invalidFlag is about the first annotation that is neither true nor false, "" for none. Such a one counts as false.
func (m *serviceMeta) invalidFlag() string {
	for _, name := range flagAnnotations {
		value, set := m.Annotations.Lookup(name)
		if set && !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
			return fmt.Sprintf("the annotation %s is %.64q, which is neither true nor false: it counts as false", name, value) // a value may have the size of an object
		}
	}
	return ""
}

// reportFlags makes an Event about an annotation of a Service that is neither true nor false, if that is new.
func (c *controller) reportFlags(s *service) {
	key, text := s.Key(), s.invalidFlag()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.flags[key] == text {
		return
	}
	if delete(c.flags, key); text == "" {
		return
	}
	c.flags[key] = text
	c.Events.Warning(corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: key.Namespace, Name: key.Name, UID: s.UID.API()}, "InvalidGlobalAnnotation", text)
}

func (c *controller) forgetFlags(key slim.Key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.flags, key)
}
