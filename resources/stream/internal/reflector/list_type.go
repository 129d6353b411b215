// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package reflector

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/skep-operator/skep/resources/k8s"
)

// The type of a list is verified: a proxy in place of the API server may answer with
// an empty list of another kind, which would delete all objects.

// verifyList returns an error for a list that is not one of this kind.
func (c *Config[P]) verifyList(head metav1.TypeMeta) error {
	name, ok := strings.CutSuffix(head.Kind, "List")
	switch {
	case !ok, name == "", c.Kind != "" && name != c.Kind && name != partialMetadata:
	case k8s.IsVersionOf(head.APIVersion, c.Resource), name == partialMetadata && head.APIVersion == metav1.GroupName+"/v1":
		return nil
	}
	return fmt.Errorf("the server answers with a %q of %q in place of a list of %s", head.Kind, head.APIVersion, c.Resource.GroupResource())
}

const partialMetadata = "PartialObjectMetadata"

const (
	unknownTypeMeta    protowire.Number = 1 // runtime.Unknown has no JSON name for it
	typeMetaAPIVersion protowire.Number = 1 // nor has runtime.TypeMeta
	typeMetaKind       protowire.Number = 2
)

// typeMeta reads the runtime.TypeMeta of an envelope.
func typeMeta(message []byte) (head metav1.TypeMeta, err error) {
	version, err := bytesField(message, typeMetaAPIVersion)
	if err != nil {
		return head, err
	}
	kind, err := bytesField(message, typeMetaKind)
	return metav1.TypeMeta{APIVersion: string(version), Kind: string(kind)}, err
}
