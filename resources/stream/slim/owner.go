// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"encoding/json"
	"fmt"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// Owner is the owner reference whose controller is true, in one word that all
// objects of the owner share. It decodes metadata.ownerReferences. The zero
// Owner is none. Owners are comparable with ==. Of parts of more than 512 bytes
// the first 512 are kept: they name nothing that there is.
type Owner struct{ packed String }

// OwnerReference is one owner of an object, for slim types that keep all of
// them.
type OwnerReference struct {
	APIVersion String `json:"apiVersion"`
	Kind       String `json:"kind"`
	Name       string `json:"name"`
	UID        UID    `json:"uid"`
	Controller bool   `json:"controller"`
}

// MakeOwner packs the reference; Controller is taken as true.
func MakeOwner(ref OwnerReference) Owner {
	return Owner{MakeString(string(packOwner(nil, []byte(ref.APIVersion.String()), []byte(ref.Kind.String()), []byte(ref.Name), []byte(ref.UID.String()))))}
}

// IsZero reports whether the object has no controller.
func (o Owner) IsZero() bool { return o == Owner{} }

// Reference unpacks the reference; the zero OwnerReference if there is none.
func (o Owner) Reference() OwnerReference {
	if o.IsZero() {
		return OwnerReference{}
	}
	var apiVersion, kind, name, uid string
	apiVersion, rest := nextPart(o.packed.String())
	kind, rest = nextPart(rest)
	name, rest = nextPart(rest)
	uid, _ = nextPart(rest)
	return OwnerReference{
		APIVersion: MakeString(apiVersion), Kind: MakeString(kind), Name: name, UID: ParseUID(uid), Controller: true,
	}
}

// Kind returns the owner's kind, "" if there is none.
func (o Owner) Kind() string { return o.Reference().Kind.String() }

// Name returns the owner's name, "" if there is none.
func (o Owner) Name() string { return o.Reference().Name }

// MarshalJSON implements json.Marshaler.
func (o Owner) MarshalJSON() ([]byte, error) {
	if o.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal([]OwnerReference{o.Reference()})
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Owner) UnmarshalJSON(data []byte) error {
	var refs []OwnerReference
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &refs); err != nil {
		return err
	}
	*o = Owner{}
	for _, ref := range refs {
		if ref.Controller {
			*o = MakeOwner(ref)
			return nil
		}
	}
	return nil
}

// AcceptsField implements FieldDecoder.
func (*Owner) AcceptsField(full reflect.Type) error {
	if full != reflect.TypeFor[[]metav1.OwnerReference]() {
		return fmt.Errorf("slim.Owner keeps owner references, not %s", full)
	}
	return nil
}

var (
	ownerAPIVersion = FieldNumber[metav1.OwnerReference]("apiVersion")
	ownerKind       = FieldNumber[metav1.OwnerReference]("kind")
	ownerName       = FieldNumber[metav1.OwnerReference]("name")
	ownerUID        = FieldNumber[metav1.OwnerReference]("uid")
	ownerController = FieldNumber[metav1.OwnerReference]("controller")
)

// DecodeField implements FieldDecoder.
func (o *Owner) DecodeField(f Field) error {
	*o = Owner{}
	for ref := range f.Values() {
		var apiVersion, kind, name, uid []byte
		var controller bool
		for rest := ref; len(rest) > 0; {
			var part wireField
			var err error
			if part, rest, err = nextField(rest); err != nil {
				return err
			}
			switch part.num {
			case ownerAPIVersion:
				apiVersion, err = part.bytes()
			case ownerKind:
				kind, err = part.bytes()
			case ownerName:
				name, err = part.bytes()
			case ownerUID:
				uid, err = part.bytes()
			case ownerController:
				controller, err = part.bool()
			}
			if err != nil {
				return err
			}
		}
		if controller && o.IsZero() {
			o.packed = f.internScratch(packOwner(f.scratch(), apiVersion, kind, name, uid))
		}
	}
	return nil
}

// mostOfOwner is how many bytes of each part are kept. No object has a longer one; the API server accepts references to what there cannot be.
const mostOfOwner = 512

func packOwner[S ~[]byte | ~string](b []byte, apiVersion, kind, name, uid S) []byte {
	for _, part := range [...]S{apiVersion, kind, name, uid} {
		b = appendPart(b, part[:min(len(part), mostOfOwner)])
	}
	return b
}
