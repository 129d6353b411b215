// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package draw

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"slices"
	"strings"
)

// element is a part of an SVG.
type element struct {
	name     string
	attrs    []attr
	text     string // of an element without children
	children []*element
}

type attr struct{ name, value string }

// parse reads an SVG; comments and white space between elements are lost.
func parse(svg []byte) (*element, error) {
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	document := &element{}
	open := []*element{document}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) && len(document.children) == 1 {
			return document.children[0], nil
		}
		if err != nil {
			return nil, err
		}
		inner := open[len(open)-1]
		switch token := token.(type) {
		case xml.StartElement:
			e := &element{name: token.Name.Local}
			for _, a := range token.Attr {
				if a.Name.Space != "xmlns" { // links, of which there are none
					e.attrs = append(e.attrs, attr{a.Name.Local, a.Value})
				}
			}
			inner.children = append(inner.children, e)
			open = append(open, e)
		case xml.EndElement:
			open = open[:len(open)-1]
		case xml.CharData:
			if text := string(token); strings.TrimSpace(text) != "" {
				inner.text += text
			}
		}
	}
}

func (e *element) attr(name string) string {
	for _, a := range e.attrs {
		if a.name == name {
			return a.value
		}
	}
	return ""
}

func (e *element) set(name, value string) {
	for i, a := range e.attrs {
		if a.name == name {
			e.attrs[i].value = value
			return
		}
	}
	e.attrs = append(e.attrs, attr{name, value})
}

func (e *element) remove(names ...string) {
	e.attrs = slices.DeleteFunc(e.attrs, func(a attr) bool { return slices.Contains(names, a.name) })
}

// child is the first child of the given name, or nil.
func (e *element) child(name string) *element {
	for _, c := range e.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// walk visits an element and all that is in it, outer before inner.
func (e *element) walk(visit func(*element)) {
	visit(e)
	for _, c := range e.children {
		c.walk(visit)
	}
}

// write writes an element, groups on lines of their own.
func (e *element) write(b *strings.Builder) {
	b.WriteString("<" + e.name)
	for _, a := range e.attrs {
		b.WriteString(" " + a.name + `="`)
		_ = xml.EscapeText(b, []byte(a.value)) // a Builder takes everything
		b.WriteString(`"`)
	}
	if e.text == "" && len(e.children) == 0 {
		b.WriteString("/>\n")
		return
	}
	b.WriteString(">")
	_ = xml.EscapeText(b, []byte(e.text))
	if len(e.children) > 0 {
		b.WriteString("\n")
	}
	for _, c := range e.children {
		c.write(b)
	}
	b.WriteString("</" + e.name + ">\n")
}
