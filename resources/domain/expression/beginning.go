// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of Skep

package expression

import "regexp/syntax"

// beginning is how a part begins.
type beginning struct {
	mayBeEmpty bool    // the part matches the empty text
	loops      bool    // what it begins with may come again
	isLoop     bool    // the part may be a loop, and nothing after it but what may be empty
	prefers    [2]bool // what it begins with may be left out or come again, and prefers that (greedy), or what follows
}

// preference is which of the two a part prefers that may be left out or come again.
func preference(part *syntax.Regexp) int {
	if part.Flags&syntax.NonGreedy != 0 {
		return 1
	}
	return 0
}

// beginning is how a part begins. Each is visited once.
func (p program) beginning(part *syntax.Regexp) beginning {
	if is, ok := p.beginnings[part]; ok {
		return is
	}
	is := p.begins(part)
	p.beginnings[part] = is
	return is
}

func (p program) begins(part *syntax.Regexp) (is beginning) {
	switch part.Op {
	case syntax.OpLiteral, syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL, syntax.OpNoMatch:
	case syntax.OpCapture:
		is = p.beginning(part.Sub[0])
		is.isLoop = false // the capture is between
	case syntax.OpStar, syntax.OpPlus, syntax.OpQuest, syntax.OpRepeat:
		is = p.beginning(part.Sub[0])
		least := part.Op == syntax.OpPlus || part.Op == syntax.OpRepeat && part.Min > 0
		is.mayBeEmpty = is.mayBeEmpty || !least
		again := part.Op == syntax.OpStar || part.Op == syntax.OpPlus || part.Op == syntax.OpRepeat && part.Max < 0
		is.loops = is.loops || again
		if again || is.mayBeEmpty {
			is.prefers[preference(part)] = true
		}
		is.isLoop = is.isLoop || again
	case syntax.OpAlternate:
		for _, sub := range part.Sub {
			is.add(p.beginning(sub))
			is.mayBeEmpty = is.mayBeEmpty || p.beginning(sub).mayBeEmpty
			is.isLoop = is.isLoop || p.beginning(sub).isLoop
		}
	case syntax.OpConcat:
		is.mayBeEmpty = true
		for _, sub := range part.Sub {
			other := p.beginning(sub)
			if is.mayBeEmpty { // so far
				is.add(other)
			}
			is.isLoop = is.isLoop && other.mayBeEmpty || is.mayBeEmpty && other.isLoop
			is.mayBeEmpty = is.mayBeEmpty && other.mayBeEmpty
		}
	default:
		is.mayBeEmpty = true
	}
	return is
}

// add adds what another part begins with.
func (is *beginning) add(other beginning) {
	is.loops = is.loops || other.loops
	for i, prefers := range other.prefers {
		is.prefers[i] = is.prefers[i] || prefers
	}
}
