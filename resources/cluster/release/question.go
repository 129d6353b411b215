// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package release

import "fmt"

// Question is something that releases answer differently, with an answer of type T for each. It is immutable.
type Question[T any] struct {
	facts
	answers [len(names)]T
}

// In returns the answer for a release.
func (q *Question[T]) In(r Release) T { return q.answers[r.index()] }

// InAll reports whether the answer to a question is yes in all releases of a set.
func InAll(q *Question[bool], s Set) bool {
	for r := range s.All() {
		if !q.In(r) {
			return false
		}
	}
	return true
}

// facts are what is told of a question.
type facts struct {
	name   string
	text   string
	source string
}

// Fact is a question with its answers as texts, in the order of All.
type Fact struct {
	// Name is that of the question in this package.
	Name string `json:"name"`
	// Text is the question.
	Text string `json:"question"`
	// Source says where the answers come from: a rule of docs/wire.
	Source  string   `json:"source"`
	Answers []string `json:"answers"`
}

// Facts returns all questions in the order of their declaration. The slice is the caller's.
func Facts() []Fact {
	facts := make([]Fact, len(asked))
	for i, fact := range asked {
		facts[i] = fact()
	}
	return facts
}

// asked are the questions that are declared.
var asked []func() Fact

// question declares a question, and its answers in the order of All.
func question[T any](name, text, source string, answers [len(names)]T) *Question[T] {
	q := &Question[T]{facts{name, text, source}, answers}
	asked = append(asked, q.fact)
	return q
}

func (q *Question[T]) fact() Fact {
	f := Fact{Name: q.name, Text: q.text, Source: q.source}
	for _, answer := range q.answers {
		f.Answers = append(f.Answers, textOf(answer))
	}
	return f
}

// textOf returns an answer as people read it.
func textOf(answer any) string {
	switch answer {
	case true:
		return "yes"
	case false:
		return "no"
	}
	return fmt.Sprint(answer)
}
