// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package slim

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"sync"
)

// Entries returns how many objects and nulls a JSON text has. One of three bytes can become a struct of hundreds: what decodes a text of others into such
// structs, or into maps, asks before. It costs a fraction of a decoding.
func Entries(text []byte) (n int) {
	if bytes.Count(text, openBrace)+bytes.Count(text, nullText) <= fewEntries { // those in strings count, too: there are few in any case
		return min(len(text), fewEntries)
	}
	inString := false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{', c == 'n':
			n++
		}
	}
	return n
}

var openBrace, nullText = []byte("{"), []byte("null")

// fewEntries are not counted.
const fewEntries = 10_000

// maxDecoded is how much memory the entries of a text may need at most while it is decoded into a slim type. Those of no object come near it, but for
// those that are made for that.
const maxDecoded = 24 << 20

// checkEntries returns an error for a text whose entries may need more.
func checkEntries(text []byte, t reflect.Type) error {
	if size := entrySizeOf(t); size*len(text)/minEntry > maxDecoded {
		if n := Entries(text); n*size > maxDecoded {
			return fmt.Errorf("%w: %d", errEntries, n)
		}
	}
	return nil
}

// errEntries is in errors of checkEntries.
var errEntries = errors.New("it has too many entries")

// minEntry is the length of an entry with what separates it from the next one.
const minEntry = 3

var entrySizes sync.Map // by reflect.Type

// entrySizeOf is the size of the largest entry of a list or a map in a type. Fields that decode themselves bound themselves.
func entrySizeOf(t reflect.Type) int {
	if size, known := entrySizes.Load(t); known {
		return size.(int)
	}
	size := largestEntry(t, map[reflect.Type]bool{})
	entrySizes.Store(t, size)
	return size
}

func largestEntry(t reflect.Type, seen map[reflect.Type]bool) (size int) {
	if seen[t] || t.Implements(jsonUnmarshalerType) || reflect.PointerTo(t).Implements(jsonUnmarshalerType) {
		return 0
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Pointer:
		return max(int(t.Elem().Size()), largestEntry(t.Elem(), seen))
	case reflect.Slice, reflect.Array:
		return max(int(t.Elem().Size()), largestEntry(t.Elem(), seen))
	case reflect.Map:
		return max(mapOverhead+int(t.Key().Size()+t.Elem().Size()), largestEntry(t.Elem(), seen))
	case reflect.Struct:
		for i := range t.NumField() {
			if name, _ := jsonName(t.Field(i)); name != "-" {
				size = max(size, largestEntry(t.Field(i).Type, seen))
			}
		}
	}
	return size
}

// mapOverhead is what a map needs for an entry beside its key and its value, at most: maps are half empty after they have grown.
const mapOverhead = 64
